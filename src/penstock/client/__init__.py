"""Asyncio Kafka and SQS client: used by the command line, between brokers, and by the Spark connector."""
