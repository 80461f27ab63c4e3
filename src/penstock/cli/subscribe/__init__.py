"""`penstock subscribe`: prints the messages of a topic."""
