"""Cluster metadata: image, broker registration, controller, topics, replica placement, queues and views."""
