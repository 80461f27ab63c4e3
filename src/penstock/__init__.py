"""Penstock: Kafka topics and SQS queues on one replicated log."""

__version__ = "0.1.0"
