"""`penstock topic`: creates, lists, describes, alters, deletes and trims topics."""
