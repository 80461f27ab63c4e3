"""The Kafka wire protocol: message schemas as data, and the codecs generated from them. No IO."""
