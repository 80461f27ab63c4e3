"""`penstock group`: groups of all protocols."""
