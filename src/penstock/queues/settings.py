"""Delivery settings of a queue or share group, and limits of every queue."""

from typing import Final, NamedTuple

IN_FLIGHT_MAX: Final = 120_000
"""Maximum number of in-flight messages of one queue: the quota of AWS for standard and FIFO queues."""
LOOKAHEAD_MAX: Final = 120_000
"""Number of unfinished messages of a FIFO queue that are searched for available message groups, as on AWS."""
RANGES_MAX: Final = 200_000
"""Maximum number of delivery ranges of one share group on one partition; above it, no new messages are delivered."""
GROUPS_MAX: Final = 10_000
"""Maximum number of share groups and queues with delivery state on one partition."""
DELAY_STEP_MS: Final = 1000
"""Due times of delayed messages are rounded up to multiples of this, in ms, so that one range has many messages."""


class DeadLetter(NamedTuple):
    """The topic of a dead-letter queue, and its number of partitions."""

    topic_id: bytes
    partitions: int


class DeliverySettings(NamedTuple):
    """Delivery settings of one share group or queue, passed with each command."""

    max_deliveries: int = 0
    """Maximum number of deliveries of a message (maxReceiveCount); 0: no limit. After the last one, the message
    moves to the dead-letter queue, or is discarded if there is none."""
    is_fifo: bool = False
    in_flight_max: int = IN_FLIGHT_MAX
    lookahead_max: int = LOOKAHEAD_MAX
    ranges_max: int = RANGES_MAX
    dead_letter: DeadLetter | None = None
    """The dead-letter queue; None: messages that would move to it are discarded."""


DEFAULTS: Final = DeliverySettings()


def share_of(limit: int, partitions: int) -> int:
    """Returns one partition's share of a limit that applies to the whole queue, rounded up.

    >>> share_of(120_000, 7)
    17143
    """
    return -(-limit // partitions)
