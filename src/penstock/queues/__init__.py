"""Delivery state of queues and share groups: which messages are available, in flight, acknowledged or dead. Pure."""
