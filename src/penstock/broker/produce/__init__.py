"""Produce requests in stages: find partitions, join the transaction, validate, append, wait for acknowledgements."""
