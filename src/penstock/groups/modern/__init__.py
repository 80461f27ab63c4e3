"""Common parts of consumer, share and streams groups, which Kafka calls modern: the broker assigns partitions."""
