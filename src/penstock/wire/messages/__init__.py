"""One file an API: its request and response."""
