"""Cluster metadata image, registration, controller, topics, replica placement, queues, views (filtered topics)."""
