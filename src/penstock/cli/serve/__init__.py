"""`penstock serve`: runs brokers."""
