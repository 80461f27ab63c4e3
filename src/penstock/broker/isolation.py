"""How much of transactions a reader wants to see (KIP-98)."""

from enum import IntEnum

from penstock.foundation.errors import InvalidRequest


class Isolation(IntEnum):
    """By its number in requests."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def wants_committed(isolation_level: int) -> bool:
    """Whether a reader wants only what is decided, and to be told what was aborted. Raises InvalidRequest."""
    if isolation_level not in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
        raise InvalidRequest(f"isolation level {isolation_level}; expected 0 or 1")
    return isolation_level == Isolation.READ_COMMITTED
