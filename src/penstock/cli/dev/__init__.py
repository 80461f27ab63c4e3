"""`penstock dev`: runs a development cluster on this machine."""
