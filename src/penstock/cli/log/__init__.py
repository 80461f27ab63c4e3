"""`penstock log`: checks and prints log files without a broker."""
