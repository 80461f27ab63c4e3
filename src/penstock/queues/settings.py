"""What decisions about delivery are made by, and the limits that hold for every queue."""

from typing import Final, NamedTuple

IN_FLIGHT_MAX: Final = 120_000
"""Messages of one queue that may be in flight at once: AWS's quota, of standard and of FIFO queues."""
LOOKAHEAD_MAX: Final = 120_000
"""Unfinished messages of a FIFO queue among which open message groups are looked for, as AWS does."""
PARCELS_MAX: Final = 200_000
"""Parcels of one group on one partition; with more, nothing fresh is looked at until some are finished."""
GROUPS_MAX: Final = 10_000
"""Groups that share one partition."""
DELAY_STEP_MS: Final = 1000
"""Delayed messages are due at whole steps, so that many are one parcel."""


class DeadLetter(NamedTuple):
    """Where messages go that nobody could work off."""

    topic_id: bytes
    partitions: int


class DeliverySettings(NamedTuple):
    """How one group delivers. Passed with each command; keep one and pass it again."""

    max_deliveries: int = 0
    """Deliveries after which a message is dead; 0: it never is."""
    is_fifo: bool = False
    in_flight_max: int = IN_FLIGHT_MAX
    lookahead_max: int = LOOKAHEAD_MAX
    parcels_max: int = PARCELS_MAX
    dead_letter: DeadLetter | None = None
    """None: a message that is dead is finished."""


DEFAULTS: Final = DeliverySettings()


def share_of(limit: int, partitions: int) -> int:
    """What one of n partitions may have of a limit that holds for the queue.

    >>> share_of(120_000, 7)
    17143
    """
    return -(-limit // partitions)
