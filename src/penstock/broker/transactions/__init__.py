"""Transactions on this broker: adding partitions to transactions, writing markers, and producer ids."""
