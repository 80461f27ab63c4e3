"""`penstock security`: certificates for TLS, and keys that encrypt secrets."""
