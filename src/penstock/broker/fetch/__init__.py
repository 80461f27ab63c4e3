"""Fetch: sessions, reading of partitions, and requests that wait for records."""
