"""Transactions on this broker: partitions that join a transaction, markers that end it, and producer ids."""
