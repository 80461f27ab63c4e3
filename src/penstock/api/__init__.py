"""The Python API: publish, subscribe, transactions, exactly once. It stands on confluent-kafka."""
