"""`penstock dev`: a cluster on this machine."""
