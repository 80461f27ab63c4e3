"""Partitions as this broker holds them: their logs, watermarks and upkeep."""
