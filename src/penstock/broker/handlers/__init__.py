"""Request handlers, one file per Kafka API; registry.load_handlers imports them all."""
