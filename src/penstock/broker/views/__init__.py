"""Filtered views on the broker: created like topics, read by Fetch, and deleted if not read for their idle period."""
