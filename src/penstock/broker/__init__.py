"""The broker: one handler file for each Kafka API, and what they share."""
