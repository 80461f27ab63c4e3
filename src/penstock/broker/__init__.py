"""The broker: one request handler file per Kafka API, and the state that handlers share."""
