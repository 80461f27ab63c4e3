"""`penstock topic`: topics."""
