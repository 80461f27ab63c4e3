"""The invariants of a cluster, checked after every step.

- CommittedNeverLost: the leader of the newest epoch has everything that any broker has committed.
- OneLeaderPerEpoch: in an epoch of a partition, one broker writes.
- HighWatermarkNeverRetreatsWithinAnEpoch, as long as its leader runs.
- LogsMatchBelowHighWatermark: what two brokers take for committed is the same.
- OffsetsNeverReused: an acknowledged record is at its offset, and no other record ever is.
- NoAbortedRead: a reader up to the last stable offset sees a transaction in all of its partitions or in none, only
  if its producer asked for a commit, and never after an abort was acknowledged.
- WrittenOnce: what an idempotent producer sends, several batches at a time and again after errors, is there once.
- LedgerNeverForgets: no count of a test-only state machine in a companion log is returned twice.
"""

from typing import NamedTuple

from penstock.records.batch import batches
from penstock.records.build import read_marker, read_records
from penstock.replication.partition import Partition
from tests.simulation.transaction_model import Txn

Place = tuple[bytes, int]
COMMIT, ABORT = "commit", "abort"
ONCE = b"once-"
"""What such values begin with."""


class Entry(NamedTuple):
    """What stands at an offset."""

    leader_epoch: int
    value: bytes
    producer_id: int = -1
    """Of what is part of a transaction, or ends one."""
    ends: str = ""


class Violation(AssertionError):
    """An invariant does not hold."""


def entries_of(partition: Partition, start: int, end: int) -> list[tuple[int, Entry]]:
    """What stands in a log between two offsets."""
    found: list[tuple[int, Entry]] = []
    while start < end:
        data = partition.log.read(start, 1 << 20, end, blocking=True)
        assert data, f"{partition.name} has nothing at {start}"
        for at, header in batches(data):
            batch = memoryview(data)[at : at + header.size_bytes]
            producer_id = header.producer_id if header.is_transactional else -1
            marker = read_marker(batch) if header.is_control else None
            ends = "" if marker is None else COMMIT if marker.committed else ABORT
            found += [
                (record.offset, Entry(header.leader_epoch, record.value or b"", producer_id, ends))
                for record in read_records(batch)
                if start <= record.offset < end
            ]
            start = max(start, header.next_offset)
    return found


class _Reader:
    """A reader of one partition up to the last stable offset."""

    def __init__(self, place: Place, txns: dict[str, Txn]) -> None:
        self._place = place
        self._txns = txns
        self.open: dict[int, int] = {}
        """The transactions that are open, by producer, and where each begins."""
        self._held: dict[int, set[str]] = {}
        self.seen: list[bytes] = []

    def take(self, offset: int, entry: Entry) -> None:
        if entry.producer_id < 0:
            return
        if not entry.ends:
            self.open.setdefault(entry.producer_id, offset)
            name = entry.value.decode(errors="replace").partition("#")[0]
            if name in self._txns:
                self._held.setdefault(entry.producer_id, set()).add(name)
            return
        self.open.pop(entry.producer_id, None)
        names = self._held.pop(entry.producer_id, set())
        if len(names) > 1:
            raise Violation(f"NoAbortedRead: {names} are ended by one marker")
        for name in names:
            txn = self._txns[name]
            (txn.seen_in if entry.ends == COMMIT else txn.hidden_in).add(hash(self._place))
            txn.check()


class Checks:
    """All that was ever seen."""

    def __init__(self, txns: dict[str, Txn]) -> None:
        self._txns = txns
        self.committed: dict[Place, list[Entry]] = {}
        self.readers: dict[Place, _Reader] = {}
        self.leaders: dict[tuple[Place, int], int] = {}
        self.newest: dict[Place, int] = {}
        """The newest leader epoch of each partition."""
        self.marks: dict[tuple[int, int, Place], tuple[int, int]] = {}
        """Leader epoch and high watermark, as last seen of a replica in one incarnation of its broker."""
        self._looked: dict[tuple[int, int, Place], tuple[int, int, int, bool]] = {}
        """What else there is to see of it."""
        self.acked: dict[Place, dict[int, bytes]] = {}
        self._once: set[bytes] = set()
        self.counted: dict[tuple[Place, bytes], set[int]] = {}
        self.commits: dict[int, int] = {}
        """The newest generation of a group in which an offset of each partition was committed."""

    def look(self, node: int, incarnation: int, partition: Partition) -> None:
        place = partition.topic_id, partition.name.partition
        key = node, incarnation, place
        epoch, mark = partition.leader_epoch, partition.high_watermark
        now = epoch, mark, partition.log.end_offset, partition.is_leader
        if self._looked.get(key) == now:
            return
        self._looked[key] = now
        if partition.log.start_offset:
            raise Violation(f"NothingIsTrimmed: {partition.name} on {node} starts at {partition.log.start_offset}")
        before_epoch, before = self.marks.get(key, (-1, 0))
        if partition.is_leader:
            self._look_at_leader(node, place, partition)
            if epoch == before_epoch and mark < before:
                raise Violation(
                    f"HighWatermarkNeverRetreatsWithinAnEpoch: {partition.name} on {node}, {before}->{mark}"
                )
        if mark > before:
            self._look_at_log(node, place, partition, before, mark)
        self._look_at_stable(node, place, partition)
        self.marks[key] = (epoch, max(mark, before) if mark >= before else mark)

    def _look_at_leader(self, node: int, place: Place, partition: Partition) -> None:
        epoch = partition.leader_epoch
        other = self.leaders.setdefault((place, epoch), node)
        if other != node:
            raise Violation(f"OneLeaderPerEpoch: {partition.name} epoch {epoch}: {other} and {node}")
        if epoch >= self.newest.get(place, -1):
            self.newest[place] = epoch
            known = len(self.committed.get(place, ()))
            if partition.log.end_offset < known:
                raise Violation(
                    f"CommittedNeverLost: {partition.name} is led by {node} in epoch {epoch} up to "
                    f"{partition.log.end_offset}, {known} are committed"
                )

    def _look_at_log(self, node: int, place: Place, partition: Partition, start: int, end: int) -> None:
        known = self.committed.setdefault(place, [])
        for offset, entry in entries_of(partition, start, end):
            if offset == len(known):
                known.append(entry)
                self._reader(place).take(offset, entry)
                if entry.value.startswith(ONCE):
                    if entry.value in self._once:
                        raise Violation(f"WrittenOnce: {entry.value!r} is in {partition.name} again at {offset}")
                    self._once.add(entry.value)
            elif offset > len(known):
                raise Violation(f"{partition.name} on {node} has a gap before {offset}")
            elif known[offset] != entry:
                raise Violation(
                    f"LogsMatchBelowHighWatermark: {partition.name} offset {offset} is {entry} on {node}, "
                    f"was committed as {known[offset]}"
                )

    def _reader(self, place: Place) -> _Reader:
        return self.readers.setdefault(place, _Reader(place, self._txns))

    def _look_at_stable(self, node: int, place: Place, partition: Partition) -> None:
        """Of what the last stable offset has passed, everything has ended; the reader may know of more by now."""
        if not partition.log.has_transactions:
            return
        stable = partition.last_stable_offset
        known = self.committed.get(place, [])
        if partition.high_watermark == len(known):
            first = min(self._reader(place).open.values(), default=stable)
            if stable > first:
                raise Violation(
                    f"NoAbortedRead: {partition.name} on {node} is stable up to {stable}, a transaction is open "
                    f"since {first}"
                )

    def acknowledged(self, place: Place, offset: int, value: bytes) -> None:
        """A producer got the acknowledgement of a record, with its offset."""
        known = self.committed.get(place, [])
        if offset >= len(known) or known[offset].value != value:
            raise Violation(f"OffsetsNeverReused: {value!r} was acknowledged at {offset}, where it is not committed")
        self.acked.setdefault(place, {})[offset] = value

    def counted_in_ledger(self, place: Place, key: bytes, count: int) -> None:
        """A client of the ledger got a count."""
        counts = self.counted.setdefault((place, key), set())
        if count in counts:
            raise Violation(f"LedgerNeverForgets: {key!r} was counted to {count} twice")
        counts.add(count)
