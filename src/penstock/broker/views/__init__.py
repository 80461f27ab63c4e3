"""Filtered views on the broker: created like topics, scanned by Fetch, dropped when idle."""
