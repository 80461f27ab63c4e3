"""`penstock log`: checks and prints segment files on disk without a broker."""
