"""Transactions on this broker: partitions that join one, markers that end one, and producer ids."""
