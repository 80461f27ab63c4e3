"""What the simulation of queues knows by itself: what was decided on a partition, taken from what is committed.

It sees decisions in the order in which they are committed, and so needs nothing of what the machine believes.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.foundation.decision import StateRecord
from penstock.queues.commands import Acknowledge, Acknowledgement, AckType, Acquired
from penstock.queues.records import DELIVERY_RANGE, read_range
from tests.simulation.queue_log import Log

FINISHES = (AckType.DONE, AckType.DELETE)


class Meaning(NamedTuple):
    """What a decision says, once it is committed."""

    at_ms: int
    delivered: tuple[Acquired, ...] = ()
    settled: tuple[Acknowledgement, ...] = ()
    """The items that were accepted; what is deleted is done, and so is what is rejected without dead letters."""
    leaving: tuple[int, ...] = ()
    """Messages that go to another queue."""
    is_repeat: bool = False
    """Whether the holder is given what it has, once more."""
    purged_to: int = 0
    """Up to where the queue is purged."""


def leaving(records: Iterable[StateRecord]) -> tuple[int, ...]:
    found: list[int] = []
    for record in records:
        if record.key[0] == DELIVERY_RANGE and record.value is not None:
            _, delivery_range = read_range(record)
            if delivery_range is not None and delivery_range.move is not None:
                found.extend(range(delivery_range.first, delivery_range.last + 1))
    return tuple(found)


def accepted(command: Acknowledge, reply: Iterable[object]) -> tuple[Acknowledgement, ...]:
    items = [item for item, error in zip(command.items, reply, strict=True) if error is None]
    finishes = FINISHES if command.settings.dead_letter is not None else (*FINISHES, AckType.REJECT)
    return tuple(item._replace(ack_type=AckType.DONE) if item.ack_type in finishes else item for item in items)


class Ledger:
    """Of one partition."""

    def __init__(self, log: Log, *, is_fifo: bool) -> None:
        self._log = log
        self._is_fifo = is_fifo
        self.acked_done: set[int] = set()
        """Offsets whose deletion was acknowledged."""
        self.done: set[int] = set()
        self.away: set[int] = set()
        self.trimmed = 0
        self.purge_asked_to = 0
        """Offsets below may be deleted without an acknowledgement: a part of a purge may have been persisted."""
        self._held: dict[int, int] = {}
        """Until when each is in flight."""
        self.deliveries = 0

    def commit(self, meaning: Meaning) -> None:
        for item in meaning.settled:
            for offset in range(item.first, item.last + 1):
                self._settle(offset, item)
        self.away.update(meaning.leaving)
        for offset in meaning.leaving:
            self._held.pop(offset, None)
        self.done.update(offset for offset in range(meaning.purged_to) if offset not in self.away)
        if meaning.delivered:
            self._hand_out(meaning)

    def _settle(self, offset: int, item: Acknowledgement) -> None:
        held = self._held.pop(offset, None)
        if item.ack_type is AckType.DONE:
            self.done.add(offset)
        elif item.ack_type is AckType.CHANGE or (item.ack_type is AckType.RENEW and held is not None):
            self._held[offset] = item.due_ms

    def _hand_out(self, meaning: Meaning) -> None:
        given = [offset for one in meaning.delivered for offset in range(one.first, one.last + 1)]
        self.deliveries += len(given)
        for offset in given:
            is_acked = offset in self.done or offset in self.acked_done
            assert not is_acked, f"AckedMessageNeverRedelivered: {offset} was deleted, and is given out again"
            assert offset not in self.away, f"DeadLetteredOnce: {offset} is on its way elsewhere, and is given out"
            name = self._log.entries[offset].message.deduplication_id
            # A message that retention has deleted reaches no worker, and its id may be taken again.
            others = self._log.entries[offset + 1 :] if name and offset >= self.trimmed else ()
            assert all(entry.message.deduplication_id != name for entry in others), (
                f"TakenOnce: {offset} with the id {name} is given out, and another was taken after it"
            )
        if self._is_fifo:
            self._check_groups(given, meaning)
        else:
            for offset in given:
                assert self._held.get(offset, 0) <= meaning.at_ms, (
                    f"OneHandPerMessage: {offset} is in flight, and is given out"
                )
        for one in meaning.delivered:
            for offset in range(one.first, one.last + 1):
                self._held[offset] = one.due_ms

    def _check_groups(self, given: list[int], meaning: Meaning) -> None:
        entries = self._log.entries
        before: set[int] = set()
        for offset in given:
            group = entries[offset].message.group
            # What is given once more was given before: a leader whose clock is behind may have opened others again.
            for other, due_ms in () if meaning.is_repeat else self._held.items():
                is_there = other >= max(self.trimmed, self.purge_asked_to)
                if is_there and other <= offset and entries[other].message.group == group:
                    assert due_ms <= meaning.at_ms, (
                        f"NothingBehindInFlight: {offset} of group {group} is given out while {other} is in flight"
                    )
            for earlier in range(self.trimmed, offset):
                if entries[earlier].message.group == group and earlier not in before:
                    assert earlier in self.done or earlier in self.away or earlier < self.purge_asked_to, (
                        f"GroupInOrder: {offset} of group {group} is given out, {earlier} before it is not finished"
                    )
            before.add(offset)
