"""`penstock group`: lists, describes, resets and deletes consumer groups and share groups."""
