"""`penstock subscribe`: reads topics."""
