"""Network listeners of a broker: Kafka (TCP) and HTTP (SQS, health, metrics); also Prometheus collectors."""
