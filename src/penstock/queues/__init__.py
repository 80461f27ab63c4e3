"""Delivery state of queues and share groups: what is available, in flight, done or dead. Pure."""
