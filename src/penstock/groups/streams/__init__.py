"""Streams groups (KIP-1071): groups whose members are instances of a Kafka Streams application."""
