"""The listeners: Kafka over TCP, and HTTP."""
