"""The state in an internal topic, by key: where each key belongs, and what must move when partitions are added. Pure.

A key belongs to the partition that its group or transactional id hashes to. When an internal topic gets more
partitions, the state of most keys is on the wrong one.
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
"""Keys of one partition that are held in memory at a time."""


class TooManyKeys(PenstockError):
    """A partition of an internal topic has more keys than can be held at a time."""

    code = ErrorCode.POLICY_VIOLATION


def home_of(topic: str, key: bytes, count: int) -> int | None:
    """Returns the partition that a key of an internal topic with `count` partitions belongs to.

    None for a kind of record that this version does not know. Raises MalformedRequest for a key that cannot be read.
    """
    owner = group_of(key) if topic == GROUPS_TOPIC else coordinator_key_in(key)
    return None if owner is None else java_hash(owner) % count


class StateTable:
    """The last value of every key of one partition, as a coordinator reads it: a machine for Replay."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.values: dict[bytes, bytes | None] = {}
        """None: the key was deleted."""
        self._places: dict[bytes, int] = {}
        self._pending: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """Of transactions that have not ended, by producer id."""
        self._count = 0

    def apply(self, record: StateRecord, producer_id: int) -> None:
        home_of(self._topic, record.key, 1)  # refuses a key that cannot be read
        self._count += 1
        if producer_id == NO_PRODUCER:
            self._put(record.key, record.value, self._count)
        else:
            self._pending.setdefault(producer_id, {})[record.key] = self._count, record.value

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for key, (place, value) in self._pending.pop(producer_id, {}).items():
            if committed and self._places.get(key, 0) < place:
                self._put(key, value, place)

    def _put(self, key: bytes, value: bytes | None, place: int) -> None:
        self.values[key] = value
        self._places[key] = place
        if len(self.values) > KEYS_MAX:
            raise TooManyKeys(f"a partition of {self._topic} has more than {KEYS_MAX} keys")


class Move(NamedTuple):
    """State that is on a partition that its key does not belong to."""

    key: bytes
    value: bytes
    source: int
    home: int
    is_copied: bool
    """Whether its home has the key already; what is there is newer, or the same."""


def find_moves(topic: str, tables: Mapping[int, StateTable]) -> Iterator[Move]:
    """Returns what must be copied to its home, and then deleted where it is."""
    for source, table in tables.items():
        for key, value in table.values.items():
            home = home_of(topic, key, len(tables))
            if value is not None and home is not None and home != source:
                yield Move(key, value, source, home, key in tables[home].values)
