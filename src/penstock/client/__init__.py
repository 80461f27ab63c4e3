"""Our own asyncio Kafka client: for the command line, for brokers among themselves, for Spark."""
