"""The isolation level of consumers: read_uncommitted or read_committed (KIP-98)."""

from enum import IntEnum

from penstock.foundation.errors import InvalidRequest


class Isolation(IntEnum):
    """Isolation levels, with the numbers used in Kafka requests."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def wants_committed(isolation_level: int) -> bool:
    """Whether the isolation level is read_committed. Raises InvalidRequest for an unknown level."""
    if isolation_level not in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
        raise InvalidRequest(
            f"isolation level {isolation_level} does not exist; expected 0 (read_uncommitted) or 1 (read_committed)"
        )
    return isolation_level == Isolation.READ_COMMITTED
