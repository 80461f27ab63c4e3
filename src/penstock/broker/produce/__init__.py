"""Produce requests in stages: find partitions, validate, join the transaction, append, wait for acknowledgements."""
