"""The Python API: publish, subscribe, transactions, exactly-once, queues. Built on confluent-kafka (librdkafka)."""
