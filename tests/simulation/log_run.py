"""One seeded life of a log: appends, syncs, trims, compactions, and every way to be interrupted.

A model remembers what was acknowledged. After each fault the log is opened again, and compared:
- CommittedNeverLost: what was acknowledged is there (after power loss: what was synced);
- OffsetsNeverReused: an offset that was read back has the content it was given;
- OffsetsContiguous: what is there has no holes, but for those that compaction makes;
- EpochsRemembered: every batch lies in the range of its leader's epoch;
- ProducersRemembered: a batch that is sent again gets its old offset.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random

from penstock.foundation.errors import OutOfOrderSequence, StorageError
from penstock.log import compaction, retention
from penstock.log.log import Log
from penstock.log.recovery import open_log
from penstock.log.settings import LogSettings
from penstock.log.times import find_time
from penstock.records.batch import batches, check_batch
from penstock.records.build import Record, build_batch, read_records
from penstock.records.compression import Codec
from tests.simulation.clock import FakeClock
from tests.simulation.disk import FakeDisk, Killed

FOLDER = "logs/t/0"


@dataclass
class ModelProducer:
    epoch: int = 0
    next_sequence: int = 0
    sent: deque[tuple[int, int, bytes]] = field(default_factory=lambda: deque(maxlen=5))  # sequence, offset, batch


@dataclass
class Model:
    """What a perfect log would hold: records by offset, and where every batch ended."""

    records: dict[int, Record] = field(default_factory=dict)
    ends: list[int] = field(default_factory=lambda: [0])
    synced_end: int = 0
    start: int = 0
    producers: dict[int, ModelProducer] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.ends[-1]

    def cut(self, end: int) -> None:
        self.ends = [known for known in self.ends if known <= end]
        self.records = {offset: record for offset, record in self.records.items() if offset < end}
        self.synced_end = min(self.synced_end, end)
        self.start = min(self.start, end)


class LogRun:
    def __init__(self, seed: int, steps: int) -> None:
        self.rng = Random(seed)
        self.steps = steps
        self.clock = FakeClock()
        self.disk = FakeDisk(Random(self.rng.random()))
        self.compacted = self.rng.random() < 0.3
        self.settings = LogSettings.of(
            {
                "segment.bytes": str(self.rng.choice((1024, 4096, 65536))),
                "index.interval.bytes": str(self.rng.choice((0, 256, 4096))),
                "cleanup.policy": "compact" if self.compacted else "delete",
                "retention.bytes": str(self.rng.choice((-1, 20_000))),
                "retention.ms": str(self.rng.choice((-1, 3_600_000))),
                "delete.retention.ms": "1000",
                "min.cleanable.dirty.ratio": "0.1",
                "message.timestamp.after.max.ms": "9223372036854775807",
            }
        )
        self.boot = 0
        self.epoch = 0
        self.model = Model()
        self.pending: list[Record] = []
        self.counts: Counter[str] = Counter()
        self.log = self._open()

    # -- one life

    def run(self) -> None:
        actions = [
            (self._append, 40),
            (self._append_idempotent, 20),
            (self._read, 10),
            (self._sync, 4),
            (self._checkpoint, 3),
            (self._roll, 1),
            (self._trim, 1),
            (self._retain, 1),
            (self._compact, 2),
            (self._reopen, 0.5),
            (self._lose_power, 0.5),
            (self._fill_disk, 0.5),
            (self._arm, 1.5),
        ]
        doing, weights = [action for action, _ in actions], [weight for _, weight in actions]
        for _ in range(self.steps):
            self.clock.advance(self.rng.randint(0, 500))
            (action,) = self.rng.choices(doing, weights)
            try:
                action()
            except Killed:
                self._recover_from_kill()
            self.counts["steps"] += 1
        self.disk.disarm()
        self._check_all()

    @property
    def faults(self) -> int:
        return self.counts["kills"] + self.counts["power_losses"] + self.counts["full_disks"]

    def _open(self) -> Log:
        recovered = open_log(self.disk, FOLDER, self.settings, boot_id=str(self.boot), now_ms=self.clock.now_ms())
        self.counts["cut_tails"] += recovered.cut_bytes > 0
        self.epoch += 1
        recovered.log.note_epoch(self.epoch, recovered.log.end_offset)
        return recovered.log

    # -- actions

    def _records(self) -> list[Record]:
        when = self.clock.now_ms() - self.rng.choice((0, 0, 0, self.rng.randint(0, 10_000)))
        return [
            Record(
                key=b"k%d" % self.rng.randint(0, 20),
                value=None if self.rng.random() < 0.1 else self.rng.randbytes(self.rng.choice((1, 30, 700))),
                timestamp_ms=when + row,
            )
            for row in range(self.rng.randint(1, 4))
        ]

    def _codec(self) -> Codec:
        return self.rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD))

    def _append(self) -> None:
        self.pending = self._records()
        try:
            appended = self.log.append(
                build_batch(self.pending, codec=self._codec()), self.epoch, self.clock.now_ms()
            )
        except StorageError:
            assert self.disk.free_bytes < 10_000
            self.pending = []
            return
        assert appended.base_offset == self.model.end
        self._acknowledge(appended.base_offset)

    def _acknowledge(self, base: int) -> None:
        for row, record in enumerate(self.pending):
            self.model.records[base + row] = record
        self.model.ends.append(base + len(self.pending))
        self.pending = []

    def _append_idempotent(self) -> None:
        producer_id = self.rng.randint(1, 3)
        known = self.model.producers.setdefault(producer_id, ModelProducer())
        if known.sent and self.rng.random() < 0.3:
            self._send_again(known)
            return
        if known.sent and self.rng.random() < 0.1:
            batch = self._build(producer_id, known, known.next_sequence + 7, [self._records()[0]])
            try:
                self.log.append(batch, self.epoch, self.clock.now_ms())
            except OutOfOrderSequence:
                self.counts["gaps_refused"] += 1
                return
            raise AssertionError("a gap in a producer's sequence was taken")
        self.pending = self._records()
        batch = self._build(producer_id, known, known.next_sequence, self.pending)
        sent = bytes(batch)
        try:
            appended = self.log.append(batch, self.epoch, self.clock.now_ms())
        except StorageError:
            assert self.disk.free_bytes < 10_000
            self.pending = []
            return
        count = len(self.pending)
        self._acknowledge(appended.base_offset)
        known.sent.append((known.next_sequence, appended.base_offset, sent))
        known.next_sequence += count

    def _build(self, producer_id: int, known: ModelProducer, sequence: int, records: list[Record]) -> bytearray:
        return build_batch(records, producer_id=producer_id, producer_epoch=known.epoch, base_sequence=sequence)

    def _send_again(self, known: ModelProducer) -> None:
        _, offset, batch = self.rng.choice(list(known.sent))
        appended = self.log.append(bytearray(batch), self.epoch, self.clock.now_ms())
        assert appended.repeated, "a batch that was sent again was appended again"
        assert appended.base_offset == offset
        self.counts["repeats_recognised"] += 1

    def _sync(self) -> None:
        ticket = self.log.begin_sync()
        for _ in range(self.rng.randint(0, 3)):
            self._append()  # while the sync is under way on its thread
        ticket.run()
        self.log.end_sync(ticket)
        self.model.synced_end = max(self.model.synced_end, ticket.end_offset)

    def _checkpoint(self) -> None:
        self.log.save_checkpoint()

    def _roll(self) -> None:
        if self.log.segments[-1].size:
            self.log.roll(self.clock.now_ms())

    def _trim(self) -> None:
        if self.compacted or self.log.end_offset == self.log.start_offset:
            return
        target = self.rng.randint(self.log.start_offset, self.log.end_offset)
        if self.rng.random() < 0.8:
            target = min(target, self.log.start_offset + 20)
        self.log.trim(target)
        self.model.start = target

    def _retain(self) -> None:
        self.clock.advance(self.rng.choice((0, 0, 600_000)))
        before = self.log.start_offset
        retention.enforce(self.log, self.clock.now_ms(), self.log.end_offset)
        self.counts["retentions"] += self.log.start_offset > before
        self.model.start = max(self.model.start, self.log.start_offset)

    def _compact(self) -> None:
        if not self.compacted:
            return
        job = compaction.plan(
            self.log, self.clock.now_ms(), self.log.end_offset, self.rng.choice((5, 1000)), bytes(16)
        )
        if job is None:
            return
        result = job.run()
        if self.rng.random() < 0.3:
            self._append()
        job.install(self.log, result)
        self.counts["compactions"] += 1
        self._check_all()

    def _fill_disk(self) -> None:
        self.counts["full_disks"] += 1
        spare, self.disk.free_bytes = self.disk.free_bytes, self.rng.randint(0, 3000)
        try:
            for _ in range(self.rng.randint(1, 10)):
                self.rng.choice((self._append, self._append_idempotent, self._checkpoint, self._retain))()
        finally:
            self.disk.free_bytes += spare
        self._check_all()

    # -- faults

    def _arm(self) -> None:
        self.disk.die_after(self.rng.randint(1, 12))

    def _reopen(self) -> None:
        self.log.close()
        self.disk.restart()
        self.log = self._open()
        self.counts["clean_restarts"] += 1
        self.model.synced_end = self.model.end
        self._check_all()

    def _recover_from_kill(self) -> None:
        self.counts["kills"] += 1
        self.disk.restart()
        self.log = self._open()
        self._adopt(lost_power=False)

    def _lose_power(self) -> None:
        self.counts["power_losses"] += 1
        self.disk.lose_power()
        self.boot += 1
        self.log = self._open()
        self._adopt(lost_power=True)

    def _adopt(self, lost_power: bool) -> None:
        """The batch that was under way may have made it; after power loss, what was not synced may be gone."""
        end = self.log.end_offset
        if self.pending and end == self.model.end + len(self.pending):
            self._acknowledge(self.model.end)
        self.pending = []
        if lost_power:
            assert end >= self.model.synced_end, f"CommittedNeverLost: {end} < {self.model.synced_end}"
            assert end in self.model.ends, "the log ends in the middle of a batch"
            self.model.cut(end)
            self.model.start = min(self.model.start, self.log.start_offset)
        assert end == self.model.end, f"CommittedNeverLost: the log ends at {end}, acknowledged {self.model.end}"
        assert self.log.start_offset >= self.model.start or self.compacted, "what was trimmed is back"
        self.model.start = max(self.model.start, self.log.start_offset)
        self._check_all()
        self._relearn_producers()

    def _relearn_producers(self) -> None:
        """The model takes over what the log remembers, once it is shown to be right."""
        for producer_id, known in list(self.model.producers.items()):
            remembered = self.log.producers.by_id.get(producer_id)
            kept = [entry for entry in known.sent if entry[1] < self.log.end_offset]
            if remembered is None or not remembered.batches:
                in_log = [entry for entry in kept if entry[1] >= self.log.segments[0].base_offset]
                assert not in_log or self.compacted, "ProducersRemembered: a producer was forgotten"
                del self.model.producers[producer_id]
                continue
            last = remembered.batches[-1]
            offsets = [sent.base_offset for sent in remembered.batches]
            kept = [entry for entry in kept if entry[1] in offsets]
            assert [entry[1] for entry in kept][-1:] in ([], [last.base_offset]) or kept == []
            known.sent = deque(kept, maxlen=5)
            known.next_sequence = last.last_sequence + 1

    # -- checks

    def _read(self) -> None:
        """A read from anywhere gives what the model has there, first of all the record asked for."""
        if self.log.end_offset == self.log.start_offset:
            return
        offset = self.rng.randint(self.log.start_offset, self.log.end_offset - 1)
        data = self.log.read(offset, self.rng.choice((1, 500, 100_000)), self.log.end_offset)
        found = [record for at, _ in batches(data) for record in read_records(data[at:])]
        if not self.compacted:
            assert found, f"nothing was read at {offset}"
        for record in found:
            self._same(record)
        after = [record.offset for record in found if record.offset >= offset]
        if not self.compacted:
            assert after[0] == offset
        self._find_by_time()

    def _find_by_time(self) -> None:
        if self.compacted:
            return
        when = self.clock.now_ms() - self.rng.randint(0, 100_000)
        expected = next(
            (
                offset
                for offset in range(self.log.start_offset, self.log.end_offset)
                if self.model.records[offset].timestamp_ms >= when
            ),
            None,
        )
        found = find_time(self.log, when, self.log.end_offset)
        assert (found[1] if found else None) == expected

    def _same(self, record: Record) -> None:
        expected = self.model.records.get(record.offset)
        assert expected is not None, f"OffsetsNeverReused: offset {record.offset} was never given"
        assert (record.key, record.value) == (expected.key, expected.value), "OffsetsNeverReused"
        assert record.timestamp_ms == expected.timestamp_ms

    def _check_all(self) -> None:
        """Read the log from its start to its end and compare."""
        offset = self.log.start_offset
        seen: dict[int, Record] = {}
        last = offset - 1
        while True:
            data = self.log.read(offset, 5000, self.log.end_offset)
            if not data:
                break
            for at, header in batches(data):
                check_batch(data, at, header)
                assert header.base_offset > last or header.last_offset >= offset
                first = max(header.base_offset, self.log.start_offset)  # a trim may go through a batch
                assert self.log.epochs.at(first) == header.leader_epoch, "EpochsRemembered"
                last = header.last_offset
                for record in read_records(data[at:]) if header.count else ():
                    self._same(record)
                    seen[record.offset] = record
            offset = last + 1
        expected = {n: r for n, r in self.model.records.items() if self.log.start_offset <= n < self.log.end_offset}
        if not self.compacted:
            assert {n for n in seen if n >= self.log.start_offset} == set(expected), "OffsetsContiguous"
            return
        latest: dict[bytes | None, int] = {}
        for number, record in sorted(expected.items()):
            latest[record.key] = number
        for number in latest.values():
            if self.model.records[number].value is not None:
                assert number in seen, f"compaction lost offset {number}, the last of its key"
