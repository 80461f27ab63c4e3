"""Queues on this broker: one object for each partition that has delivery state, and the service over all of them."""
