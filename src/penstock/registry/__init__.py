"""The REST API of the schema registry, compatible with Confluent's: served under `/registry` on the HTTP port."""
