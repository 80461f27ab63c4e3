"""Network listeners of a broker: Kafka over TCP and HTTP (SQS, health, metrics), and Prometheus collectors."""
