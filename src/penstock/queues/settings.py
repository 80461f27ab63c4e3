"""Settings of delivery, and limits of every queue."""

from typing import Final, NamedTuple

IN_FLIGHT_MAX: Final = 120_000
"""Limit of messages in flight of one queue: the quota of AWS, for standard and FIFO queues."""
LOOKAHEAD_MAX: Final = 120_000
"""Unfinished messages of a FIFO queue that are searched for available message groups, as on AWS."""
RANGES_MAX: Final = 200_000
"""Limit of delivery ranges of one group on one partition; above it, no fresh messages are delivered."""
GROUPS_MAX: Final = 10_000
"""Limit of groups on one partition."""
DELAY_STEP_MS: Final = 1000
"""Due times of delayed messages are rounded up to this, so that many messages form one delivery range."""


class DeadLetter(NamedTuple):
    """The topic of a dead-letter queue."""

    topic_id: bytes
    partitions: int


class DeliverySettings(NamedTuple):
    """Delivery settings of one group, passed with each command."""

    max_deliveries: int = 0
    """Deliveries after which a message is dead; 0: no limit."""
    is_fifo: bool = False
    in_flight_max: int = IN_FLIGHT_MAX
    lookahead_max: int = LOOKAHEAD_MAX
    ranges_max: int = RANGES_MAX
    dead_letter: DeadLetter | None = None
    """None: dead messages are discarded."""


DEFAULTS: Final = DeliverySettings()


def share_of(limit: int, partitions: int) -> int:
    """Returns the share of a queue's limit that one partition gets.

    >>> share_of(120_000, 7)
    17143
    """
    return -(-limit // partitions)
