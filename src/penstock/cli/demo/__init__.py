"""`penstock demo`: a guided tour on a temporary broker."""
