"""Finds anomalies in a history of producers and consumers. Pure.

The anomalies have the names that Jepsen's Kafka workload gives them (jepsen.tests.kafka). A key is a partition, and
every value is sent once at most.

- inconsistent-offsets: two values were seen at one offset
- duplicate: a value was seen at two offsets
- lost-write: a value that was surely written was not read, though a later one was
- unseen: an acknowledged value was never polled by a consumer that should poll everything
- G1a: a value of a failed transaction was read
- poll-skip: a reader went past a value without reading it
- nonmonotonic-poll: a reader went back, or stayed where it was
- nonmonotonic-send: what a process sent later came to stand before what it sent earlier
"""

import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """What a process knows of what it did."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"
    """It may have happened, or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A value in a partition; the offset is None if it is not known."""

    key: str
    value: str
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One thing that a process did: it sent (alone or in a transaction), it polled, or it was assigned partitions."""

    process: str
    outcome: Outcome = Outcome.OK
    sent: tuple[Message, ...] = ()
    polled: tuple[Message, ...] = ()
    assigned: bool = False
    """From here on it may read from another place than where it was."""
    audience: str = ""
    """The consumer: a process, or the group it is a member of. It should poll everything."""

    def dump(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value or name == "process"})

    @classmethod
    def load(cls, line: str) -> "Op":
        values = json.loads(line)
        for name in ("sent", "polled"):
            values[name] = tuple(Message(**each) for each in values.get(name, ()))
        return cls(**values | {"outcome": Outcome(values["outcome"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    name: str
    key: str
    what: str


SHAKY: Final = frozenset({"inconsistent-offsets", "nonmonotonic-poll", "G1a"})
"""What must not happen even where messages may be lost: in memory, when all replicas were restarted."""


def check(history: Sequence[Op], volatile: Collection[str] = ()) -> list[Anomaly]:
    """All anomalies of a history. `volatile`: keys whose messages need not survive."""
    return [found for found in _Analysis(history).anomalies() if found.key not in volatile or found.name in SHAKY]


class _Analysis:
    """A history, looked at from all sides."""

    def __init__(self, history: Sequence[Op]) -> None:
        self._history = history
        self._audiences = {op.audience for op in history if op.audience}
        self._polled: dict[tuple[str, str], set[str]] = defaultdict(set)
        """The values that each audience has polled of each key."""
        self._read: dict[str, set[str]] = defaultdict(set)
        """The values of each key that were polled by any consumer."""
        self._places: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        """By key and offset, what was seen there."""
        for op in history:
            for message in op.polled:
                self._polled[op.audience, message.key].add(message.value)
                self._read[message.key].add(message.value)
        for op in history:
            for message in (*op.polled, *(op.sent if self._is_there(op) else ())):
                if message.offset is not None:
                    self._places[message.key][message.offset].add(message.value)
        self._order = {key: sorted(places) for key, places in self._places.items()}
        """The offsets of each key at which there is something: markers of transactions leave gaps."""

    def _is_there(self, op: Op) -> bool:
        """Whether what was sent is surely in the log: it was acknowledged, or a part of it was read."""
        if op.outcome is Outcome.INFO:
            return any(message.value in self._read[message.key] for message in op.sent)
        return op.outcome is Outcome.OK

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self._inconsistent_offsets()
        yield from self._duplicates()
        yield from self._lost_writes()
        yield from self._unseen()
        yield from self._aborted_reads()
        yield from self._bad_polls()
        yield from self._bad_sends()

    def _inconsistent_offsets(self) -> Iterator[Anomaly]:
        for key, places in self._places.items():
            for offset, values in places.items():
                if len(values) > 1:
                    yield Anomaly(name="inconsistent-offsets", key=key, what=f"offset {offset}: {sorted(values)}")

    def _duplicates(self) -> Iterator[Anomaly]:
        for key, places in self._places.items():
            times = Counter(value for values in places.values() for value in values)
            doubled = {value for value, count in times.items() if count > 1}
            for value in sorted(doubled):
                offsets = sorted(offset for offset, values in places.items() if value in values)
                yield Anomaly(name="duplicate", key=key, what=f"{value} at offsets {offsets}")

    def _lost_writes(self) -> Iterator[Anomaly]:
        last = {
            key: max(offset for offset, values in places.items() if not values.isdisjoint(self._read[key]))
            for key, places in self._places.items()
            if self._read[key]
        }
        for op in self._history:
            if self._is_there(op):
                for message in op.sent:
                    is_read = message.value in self._read[message.key]
                    if not is_read and message.offset is not None and message.offset < last.get(message.key, -1):
                        what = f"{message.value} at offset {message.offset}, read up to {last[message.key]}"
                        yield Anomaly(name="lost-write", key=message.key, what=what)

    def _unseen(self) -> Iterator[Anomaly]:
        """Also the rest of a transaction of which a part was read."""
        for op in self._history:
            if self._is_there(op):
                for message in op.sent:
                    for audience in sorted(self._audiences):
                        if message.value not in self._polled[audience, message.key]:
                            what = f"{message.value} at offset {message.offset} by {audience}"
                            yield Anomaly(name="unseen", key=message.key, what=what)

    def _aborted_reads(self) -> Iterator[Anomaly]:
        for op in self._history:
            if op.outcome is Outcome.FAIL:
                for message in op.sent:
                    if message.value in self._read[message.key]:
                        yield Anomaly(name="G1a", key=message.key, what=f"{message.value} of {op.process}")

    def _bad_polls(self) -> Iterator[Anomaly]:
        """Within a poll and between two of them alike."""
        lasts: dict[str, dict[str, int]] = defaultdict(dict)
        for op in self._history:
            last = lasts[op.process]
            if op.assigned:
                last.clear()
            for message in op.polled:
                assert message.offset is not None, "a consumer knows the offset of a message"
                before = last.get(message.key)
                if before is not None:
                    yield from self._step(op.process, message.key, before, message.offset)
                last[message.key] = message.offset

    def _step(self, process: str, key: str, before: int, after: int) -> Iterator[Anomaly]:
        if after <= before:
            what = f"{process} polled offset {after} after {before}"
            yield Anomaly(name="nonmonotonic-poll", key=key, what=what)
            return
        offsets = self._order[key]
        skipped = offsets[bisect_right(offsets, before) : bisect_left(offsets, after)]
        if skipped:
            what = f"{process} polled offset {after} after {before}, and not {skipped[:10]}"
            yield Anomaly(name="poll-skip", key=key, what=what)

    def _bad_sends(self) -> Iterator[Anomaly]:
        lasts: dict[tuple[str, str], Message] = {}
        for op in self._history:
            if op.outcome is not Outcome.OK:
                continue
            for message in op.sent:
                before = lasts.get((op.process, message.key))
                if message.offset is None:
                    continue
                if before is not None and before.offset is not None and message.offset <= before.offset:
                    what = (
                        f"{op.process}: {before.value} at {before.offset}, then {message.value} at {message.offset}"
                    )
                    yield Anomaly(name="nonmonotonic-send", key=message.key, what=what)
                lasts[op.process, message.key] = message


def count(anomalies: Iterable[Anomaly]) -> Mapping[str, int]:
    """How many there are of each."""
    return dict(Counter(found.name for found in anomalies))
