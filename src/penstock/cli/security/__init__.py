"""`penstock security`: certificates for TLS."""
