"""Client telemetry (KIP-714): metric subscriptions, client instances, and the metric values that clients push."""
