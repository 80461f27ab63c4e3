"""`penstock serve`: runs one broker, or several broker processes of a cluster."""
