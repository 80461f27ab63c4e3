"""State of an internal topic by key: finds keys on the wrong partition after partitions were added. Pure.

A key belongs to the partition that its group or transactional id hashes to. When an internal topic gets more
partitions, most keys are on the wrong partition.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NO_PRODUCER, StateRecord
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import GROUPS_TOPIC
from penstock.groups.state_keys import group_of
from penstock.replication.runtimes import java_hash
from penstock.transactions.records import coordinator_key_in

KEYS_MAX: Final = 5_000_000
"""Maximum number of keys of one partition that are held in memory."""


class TooManyKeys(PenstockError):
    """A partition of an internal topic has more than KEYS_MAX keys."""

    code = ErrorCode.POLICY_VIOLATION


def home_of(topic: str, key: bytes, count: int) -> int | None:
    """Returns the partition that a key of an internal topic with `count` partitions belongs to.

    Returns None for an unknown record type. Raises MalformedRequest for a key that cannot be decoded.
    """
    owner = group_of(key) if topic == GROUPS_TOPIC else coordinator_key_in(key)
    return None if owner is None else java_hash(owner) % count


class StateTable:
    """The last value of each key in one partition of an internal topic. `Replay` fills it from the partition's log,
    as if it were a coordinator's state machine."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.values: dict[bytes, bytes | None] = {}
        """The last committed value of each key; None if the key was deleted."""
        self._positions: dict[bytes, int] = {}
        self._pending: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """Records of open transactions, by producer id and key: (replay position, value). Value None: tombstone."""
        self._count = 0

    def apply(self, record: StateRecord, producer_id: int) -> None:
        home_of(self._topic, record.key, 1)  # raises MalformedRequest for a key that cannot be read
        self._count += 1
        if producer_id == NO_PRODUCER:
            self._put(record.key, record.value, self._count)
        else:
            self._pending.setdefault(producer_id, {})[record.key] = self._count, record.value

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for key, (position, value) in self._pending.pop(producer_id, {}).items():
            if committed and self._positions.get(key, 0) < position:
                self._put(key, value, position)

    def _put(self, key: bytes, value: bytes | None, position: int) -> None:
        self.values[key] = value
        self._positions[key] = position
        if len(self.values) > KEYS_MAX:
            raise TooManyKeys(f"a partition of {self._topic} has more than {KEYS_MAX} keys")


class Move(NamedTuple):
    """A key whose state is on a partition (`source`) other than the one that the key belongs to (`home`)."""

    key: bytes
    value: bytes
    source: int
    home: int
    is_copied: bool
    """Whether the partition `home` already has the key, with the same or a newer value."""


def find_moves(topic: str, tables: Mapping[int, StateTable]) -> Iterator[Move]:
    """Yields the keys that must be copied to their home partition and then deleted from their current partition."""
    for source, table in tables.items():
        for key, value in table.values.items():
            home = home_of(topic, key, len(tables))
            if value is not None and home is not None and home != source:
                yield Move(key, value, source, home, key in tables[home].values)
