"""One file a Kafka API; registry.load_handlers imports them all."""
