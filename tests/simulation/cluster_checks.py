"""What must hold in a cluster whatever happens, looked at after every step.

- CommittedNeverLost: who leads in the newest epoch has everything that anyone ever took for committed.
- OneLeaderPerEpoch: in an epoch of a partition, one broker writes.
- HighWatermarkNeverRetreatsWithinAnEpoch, as long as its leader lives.
- LogsMatchBelowHighWatermark: what two brokers take for committed is the same.
- OffsetsNeverReused: what a producer was told stands where it was told, and nothing else does.
"""

from penstock.records.batch import batches
from penstock.records.build import read_records
from penstock.replication.partition import Partition

Place = tuple[bytes, int]
Entry = tuple[int, bytes]
"""The leader epoch and the value of a message."""


class Violation(AssertionError):
    """An invariant does not hold."""


def entries_of(partition: Partition, start: int, end: int) -> list[tuple[int, Entry]]:
    """The messages of a log between two offsets."""
    found: list[tuple[int, Entry]] = []
    while start < end:
        data = partition.log.read(start, 1 << 20, end, blocking=True)
        assert data, f"{partition.name} has nothing at {start}"
        for at, header in batches(data):
            found += [
                (record.offset, (header.leader_epoch, record.value or b""))
                for record in read_records(memoryview(data)[at : at + header.size_bytes])
                if start <= record.offset < end
            ]
            start = max(start, header.next_offset)
    return found


class Checks:
    """All that was ever seen."""

    def __init__(self) -> None:
        self.committed: dict[Place, list[Entry]] = {}
        self.leaders: dict[tuple[Place, int], int] = {}
        self.newest: dict[Place, int] = {}
        """The newest epoch that anyone has led a partition in."""
        self.marks: dict[tuple[int, int, Place], tuple[int, int]] = {}
        """Leader epoch and high watermark, as last seen of a replica in one life of its broker."""
        self.acked: dict[Place, dict[int, bytes]] = {}

    def look(self, node: int, life: int, partition: Partition) -> None:
        place = partition.topic_id, partition.name.partition
        key = node, life, place
        epoch, mark = partition.leader_epoch, partition.high_watermark
        before_epoch, before = self.marks.get(key, (-1, 0))
        if partition.is_leader:
            self._look_at_leader(node, place, partition)
            if epoch == before_epoch and mark < before:
                raise Violation(
                    f"HighWatermarkNeverRetreatsWithinAnEpoch: {partition.name} on {node}, {before}->{mark}"
                )
        if mark > before:
            self._look_at_log(node, place, partition, before, mark)
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
            elif offset > len(known):
                raise Violation(f"{partition.name} on {node} has a gap before {offset}")
            elif known[offset] != entry:
                raise Violation(
                    f"LogsMatchBelowHighWatermark: {partition.name} offset {offset} is {entry} on {node}, "
                    f"was committed as {known[offset]}"
                )

    def acknowledged(self, place: Place, offset: int, value: bytes) -> None:
        """A producer was told that its message is safe, and where it is."""
        known = self.committed.get(place, [])
        if offset >= len(known) or known[offset][1] != value:
            raise Violation(f"OffsetsNeverReused: {value!r} was acknowledged at {offset}, where it is not committed")
        self.acked.setdefault(place, {})[offset] = value
