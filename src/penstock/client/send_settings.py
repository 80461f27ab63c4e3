"""Settings of the batch sender, apart from it: Spark's driver checks them without loading the sender."""

from dataclasses import dataclass
from typing import Final

IN_FLIGHT_MAX: Final = 5
"""Maximum number of batches in flight per partition: a leader remembers as many of a producer's last batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSettings:
    in_flight_max: int = IN_FLIGHT_MAX
    """Maximum number of batches in flight per partition."""
    request_bytes_max: int = 4 << 20
    """Maximum bytes of all batches in one request; a larger batch is sent alone."""
    buffer_bytes_max: int = 32 << 20
    """Maximum bytes of batches queued and in flight; at this limit `send` waits."""
    delivery_timeout_s: float = 120.0
    """How long, in seconds, a batch is retried before it fails."""
