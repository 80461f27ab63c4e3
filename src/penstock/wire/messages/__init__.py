"""Message schemas of the Kafka protocol and of Penstock's own APIs: one file per API, request and response."""
