"""The Kafka protocol: schemas as data and the codecs made from them. No IO."""
