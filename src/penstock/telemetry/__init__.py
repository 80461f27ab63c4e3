"""Client telemetry (KIP-714): which metrics clients are asked for, and the values that they push. Pure."""
