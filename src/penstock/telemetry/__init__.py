"""Client telemetry (KIP-714): metric subscriptions, client instances, and pushed values."""
