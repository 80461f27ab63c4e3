"""One seeded run of a log: appends, transactions, syncs, trims, compactions, and every way to be interrupted.

What waits for the disk is done by threads that take their time: anything may happen before they have ended. An fsync
may fail, after which the kernel may have dropped what was not synced: the process is restarted in the same boot.

A model remembers what was acknowledged. After each fault the log is opened again, and compared:
- CommittedNeverLost: what was acknowledged is there (after power loss or a failed fsync: what was synced);
- OffsetsNeverReused: an offset that was read back has the content it was given;
- OffsetsContiguous: what is there has no holes, but for those that compaction makes;
- EpochsRemembered: every batch lies in the range of its leader's epoch;
- ProducersRemembered: a batch that is sent again gets its old offset, and a fenced producer stays fenced;
- NoAbortedRead: a read_committed reader, which skips the aborted transactions of the response, gets exactly the
  records of committed transactions and of none, up to the last stable offset and not beyond it.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

from penstock.foundation.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    PenstockError,
    StorageError,
    TransactionCoordinatorFenced,
)
from penstock.log import compaction, retention
from penstock.log.checkpoint import SyncTicket
from penstock.log.io_queue import IoQueue, Outcome
from penstock.log.log import Appended, Log
from penstock.log.recovery import Recovered, open_log
from penstock.log.removal import TornLog
from penstock.log.settings import LogSettings
from penstock.log.timestamp_lookup import find_time
from penstock.records.batch import BatchHeader, batches, check_batch
from penstock.records.build import Marker, Record, build_batch, control_marker, read_marker, read_records
from penstock.records.compression import Codec
from tests.simulation.clock import FakeClock
from tests.simulation.disk import FakeDisk, Killed
from tests.simulation.log_model import Model, ModelProducer, Written
from tests.simulation.threads import FakeThreads

FOLDER = "logs/t/0"
IDEMPOTENT = (1, 2, 3)
TRANSACTIONAL = (11, 12, 13, 14)
"""Of these the even ones get a new epoch with every marker (transaction version 2)."""
OWN = (21, 22)
"""The producer id of the broker's own batches, without sequences."""


FAULTS_MIN = 10
"""A run goes on until it has seen so many."""


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
        self.pending: Written | None = None
        self.high_watermark = 0
        self.coordinator_epoch = 1
        self.truncating = False
        self._checked: dict[tuple[int, int], tuple[int, ...]] = {}
        self.counts: Counter[str] = Counter()
        self.threads = FakeThreads(Random(self.rng.random()))
        self._is_compacting = False
        self.drops = not self.compacted and self.rng.random() < 0.4
        """Whether segments are dropped from the middle, as a queue does with what is finished."""
        self.droppable: set[int] = set()
        """Offsets of segments that were to be dropped: they may be there or not."""
        self.forgotten_to = 0
        self._failed_syncs = 0
        """Those whose effect has been seen."""
        self._is_offline = False
        """Whether an fsync failed, so that the log must not be used until a process opens it again."""
        self.log = self._open()

    # -- the run

    def run(self) -> None:
        actions = [
            (self._append, 30),
            (self._append_idempotent, 15),
            (self._append_transactional, 15),
            (self._append_own, 3),
            (self._end_transaction, 9),
            (self._break_rules, 2),
            (self._commit, 8),
            (self._expire, 0.3),
            (self._truncate, 0.5),
            (self._read, 10),
            (self._sync, 4),
            (self._checkpoint, 3),
            (self._roll, 1),
            (self._trim, 1),
            (self._retain, 1),
            (self._compact, 2),
            (self._drop_finished, 2),
            (self.threads.step, 12),
            (self._reopen, 0.5),
            (self._lose_power, 0.5),
            (self._fill_disk, 0.5),
            (self._arm, 1.5),
            (self._fail_sync, 0.5),
        ]
        doing, weights = [action for action, _ in actions], [weight for _, weight in actions]
        while self.counts["steps"] < self.steps or self.faults < FAULTS_MIN:
            self.clock.advance(self.rng.randint(0, 500))
            (action,) = self.rng.choices(doing, weights)
            try:
                action()
            except Killed:
                self._recover_from_kill()
            if self._is_offline or self.disk.has_dropped:
                self._restart_offline()
            self.counts["steps"] += 1
        self.disk.disarm()
        self.threads.run_all()
        self._check_all()

    @property
    def faults(self) -> int:
        return self.counts["kills"] + self.counts["power_losses"] + self.counts["full_disks"]

    def _open(self) -> Log:
        self.threads.clear()
        self._is_compacting = self._is_offline = False
        recovered = self._recovered()
        self.counts["cut_tails"] += recovered.cut_bytes > 0
        self.epoch += 1
        recovered.log.note_epoch(self.epoch, recovered.log.end_offset)
        recovered.log.io = IoQueue(self.threads.run)
        return recovered.log

    def _recovered(self) -> Recovered:
        while True:
            try:
                return open_log(self.disk, FOLDER, self.settings, boot_id=str(self.boot), now_ms=self.clock.now_ms())
            except StorageError:
                # A process that cannot open it because an fsync fails is restarted.
                assert self.disk.failed_syncs > self.counts["failed_opens"], "a log cannot be opened"
                self.counts["failed_opens"] = self.disk.failed_syncs
                self.disk.restart()

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
        records = self._records()
        self._write(Written(records=records), build_batch(records, codec=self._codec()))

    def _write(
        self, written: Written, batch: bytearray, own: bool = False, may_begin: bool = False
    ) -> Appended | None:
        """Append a batch, and have the model follow; None if the disk was too full."""
        self.pending = written
        try:
            if own:
                appended = self.log.append_own(batch, self.epoch, self.clock.now_ms())
            else:
                appended = self.log.append(batch, self.epoch, self.clock.now_ms(), may_begin)
        except StorageError:
            assert self.disk.free_bytes < 10_000
            self.pending = None
            return None
        assert appended.base_offset == self.model.end
        self._acknowledge(appended.base_offset)
        return appended

    def _acknowledge(self, base: int) -> None:
        assert self.pending is not None
        self.model.add(replace(self.pending, base=base))
        self.pending = None

    def _append_idempotent(self) -> None:
        producer_id = self.rng.choice(IDEMPOTENT)
        known = self.model.producers.setdefault(producer_id, ModelProducer())
        if known.sent and self.rng.random() < 0.3:
            self._send_again(known)
            return
        if known.sent and self.rng.random() < 0.1:
            batch = self._build(producer_id, known, known.next_sequence + 7, [self._records()[0]])
            self._refused(OutOfOrderSequence, batch)
            self.counts["gaps_refused"] += 1
            return
        self._send(producer_id, known)

    def _send(self, producer_id: int, known: ModelProducer, transactional: bool = False, begin: bool = False) -> None:
        """The producer's next batch."""
        records = self._records()
        batch = self._build(producer_id, known, known.next_sequence, records, transactional)
        sent = bytes(batch)
        written = Written(records=records, producer_id=producer_id, epoch=known.epoch, is_transactional=transactional)
        appended = self._write(written, batch, may_begin=begin)
        if appended is not None:
            known.sent.append((known.next_sequence, appended.base_offset, sent))
            known.next_sequence += len(records)

    def _build(
        self,
        producer_id: int,
        known: ModelProducer,
        sequence: int,
        records: list[Record],
        transactional: bool = False,
    ) -> bytearray:
        return build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=known.epoch,
            base_sequence=sequence,
            transactional=transactional,
            codec=self._codec(),
        )

    def _send_again(self, known: ModelProducer) -> None:
        _, offset, batch = self.rng.choice(list(known.sent))
        appended = self.log.append(bytearray(batch), self.epoch, self.clock.now_ms())
        assert appended.repeated, "a batch that was sent again was appended again"
        assert appended.base_offset == offset
        self.counts["repeats_recognised"] += 1

    def _refused(self, error: type[PenstockError], batch: bytearray, own: bool = False, begin: bool = False) -> None:
        try:
            if own:
                self.log.append_own(batch, self.epoch, self.clock.now_ms())
            else:
                self.log.append(batch, self.epoch, self.clock.now_ms(), begin)
        except error:
            self.counts["refused"] += 1
            return
        raise AssertionError(f"a batch was taken that should have been refused with {error.__name__}")

    # -- transactions

    def _append_transactional(self) -> None:
        producer_id = self.rng.choice(TRANSACTIONAL)
        known = self.model.producers.setdefault(producer_id, ModelProducer())
        if known.sent and self.rng.random() < 0.1:
            self._send_again(known)
        else:
            self._send(producer_id, known, transactional=True, begin=producer_id not in self.model.open)

    def _append_own(self) -> None:
        """What a group coordinator does with offsets that are committed in a transaction."""
        producer_id = self.rng.choice(OWN)
        known = self.model.producers.setdefault(producer_id, ModelProducer())
        records = self._records()
        batch = build_batch(records, producer_id=producer_id, producer_epoch=known.epoch, transactional=True)
        written = Written(records=records, producer_id=producer_id, epoch=known.epoch, is_transactional=True)
        self._write(written, batch, own=True)

    def _end_transaction(self) -> None:
        known_ids = [producer_id for producer_id in (*TRANSACTIONAL, *OWN) if producer_id in self.model.producers]
        open_ids = [producer_id for producer_id in known_ids if producer_id in self.model.open]
        if self.rng.random() < 0.1:
            open_ids = known_ids  # a marker without a transaction, or that is written twice
        if not open_ids:
            return
        if self.rng.random() < 0.05:
            self.coordinator_epoch += 1
        producer_id = self.rng.choice(open_ids)
        known = self.model.producers[producer_id]
        epoch = known.epoch + (producer_id % 2 == 0)
        batch = self._marker(producer_id, epoch, committed := self.rng.random() < 0.6)
        written = Written(
            records=read_records(batch),
            producer_id=producer_id,
            epoch=epoch,
            is_transactional=True,
            marker=Marker(committed, self.coordinator_epoch),
        )
        self.counts["aborts"] += producer_id in self.model.open and not committed
        if self._write(written, batch, own=True) is not None and epoch != known.epoch:
            self.model.producers[producer_id] = ModelProducer(epoch=epoch)

    def _marker(
        self, producer_id: int, epoch: int, committed: bool, coordinator_epoch: int | None = None
    ) -> bytearray:
        return control_marker(
            commit=committed,
            coordinator_epoch=self.coordinator_epoch if coordinator_epoch is None else coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=self.clock.now_ms(),
        )

    def _break_rules(self) -> None:
        """Zombies and producers that have lost their way change nothing."""
        producer_id = self.rng.choice(TRANSACTIONAL)
        known = self.model.producers.get(producer_id)
        remembered = self.log.producers.by_id.get(producer_id)
        if known is None or remembered is None:
            return
        if known.epoch > 0:
            zombie = ModelProducer(epoch=known.epoch - 1)
            self._refused(
                InvalidProducerEpoch, self._build(producer_id, zombie, 0, self._records(), True), begin=True
            )
            self._refused(InvalidProducerEpoch, self._marker(producer_id, known.epoch - 1, True), own=True)
        if remembered.coordinator_epoch > 0:
            late = self._marker(producer_id, known.epoch, True, remembered.coordinator_epoch - 1)
            self._refused(TransactionCoordinatorFenced, late, own=True)
        is_open = producer_id in self.model.open
        self._refused(
            InvalidTxnState, self._build(producer_id, known, known.next_sequence, self._records(), not is_open)
        )
        assert self.log.producers.is_in_transaction(producer_id, known.epoch) == is_open

    def _expire(self) -> None:
        """Producers that were silent for long are forgotten, unless they have an open transaction."""
        self.log.producers.expire(self.clock.now_ms() - self.rng.choice((1000, 20_000)))
        for producer_id, known in self.model.producers.items():
            if producer_id not in self.log.producers.by_id:
                assert producer_id not in self.model.open, f"producer {producer_id} expired in a transaction"
                self.counts["expired"] += 1
                self.model.expired[producer_id] = self.model.end
                self.model.producers[producer_id] = ModelProducer(epoch=known.epoch + 1)

    def _commit(self) -> None:
        """What was appended is replicated, or flushed: readers may see it."""
        before = self.high_watermark
        self.high_watermark = self.log.end_offset
        if self.rng.random() < 0.3:
            self.high_watermark = self.rng.choice([end for end in self.model.ends if end >= before])

    def _truncate(self) -> None:
        """A new leader never had what was not committed."""
        if self.high_watermark == self.log.end_offset:
            return
        offset = self.rng.randint(self.high_watermark, self.log.end_offset)
        self.threads.run_all()  # it is a job like others, and its turn comes after theirs
        if self._is_offline or self.disk.has_dropped:
            return
        self.truncating = True
        try:
            self.log.truncate(offset, self.clock.now_ms())
        except TornLog:
            assert self.disk.failed_syncs
            self._is_offline = True
            return
        except StorageError:  # a full disk: then all is as it was
            self.truncating = False
            self.counts["not_truncated"] += 1
            self._check_all()
            return
        self.truncating = False
        self.counts["truncations"] += 1
        end = max(known for known in self.model.ends if known <= offset)
        assert self.log.end_offset == end, f"truncated to {offset}, the log ends at {self.log.end_offset}, not {end}"
        self._cut(end)
        self._relearn_producers()
        self._check_all()

    def _sync(self) -> None:
        log, tickets = self.log, list[SyncTicket]()

        def begin() -> Callable[[], None]:
            tickets.append(log.begin_sync())
            return tickets[0].run

        def end(outcome: Outcome) -> None:
            if outcome.error is not None:
                assert self.disk.failed_syncs, outcome.error
                self._is_offline = True
                return
            log.end_sync(tickets[0])
            self.model.synced_end = max(self.model.synced_end, tickets[0].end_offset)

        log.io.add(begin, end)

    def _checkpoint(self) -> None:
        self.log.save_checkpoint()

    def _roll(self) -> None:
        if self.log.segments[-1].size:
            self.log.roll(self.clock.now_ms())

    def _trim(self) -> None:
        if self.compacted or self.log.end_offset == self.log.start_offset:
            return
        target = self.rng.randint(self.log.start_offset, self.high_watermark)
        if self.rng.random() < 0.8:
            target = min(target, self.log.start_offset + 20)
        self.log.trim(target)
        self.model.start = target

    def _retain(self) -> None:
        self.clock.advance(self.rng.choice((0, 0, 600_000)))
        before = self.log.start_offset
        retention.enforce(self.log, self.clock.now_ms(), self.high_watermark)
        self.counts["retentions"] += self.log.start_offset > before
        self.model.start = max(self.model.start, self.log.start_offset)

    def _compact(self) -> None:
        if not self.compacted or self._is_compacting:
            return
        job = compaction.plan(
            self.log, self.clock.now_ms(), self.high_watermark, self.rng.choice((5, 1000)), bytes(16)
        )
        if job is None:
            return
        try:
            result = job.run()
        except StorageError:
            assert self.disk.failed_syncs
            return
        self._is_compacting = True

        def end(outcome: Outcome) -> None:
            self._is_compacting = False
            if outcome.error is not None:
                assert self.counts["full_disks"] or self.disk.failed_syncs, outcome.error
                self._is_offline = isinstance(outcome.error, TornLog)
                return
            self.counts["compactions"] += outcome.value
            self._check_all()

        job.install(self.log, result, end)

    def _drop_finished(self) -> None:
        """Some segments of which all is committed and synced."""
        log = self.log
        limit = min(log.last_stable_offset(self.high_watermark), log.durable_stable_offset, log.checkpoint.synced_to)
        bases = [segment.base_offset for segment in log.segments]
        closed = [(first, end) for first, end in pairwise(bases) if end <= limit]
        if not self.drops or not closed:
            return
        chosen = dict(self.rng.sample(closed, self.rng.randint(1, min(3, len(closed)))))
        for first, end in chosen.items():
            self.droppable.update(range(first, end))

        def end_drop(outcome: Outcome) -> None:
            if outcome.error is not None:
                assert self.counts["full_disks"] or self.disk.failed_syncs, outcome.error
                return
            self.counts["drops"] += outcome.value > 0
            self._check_all()

        log.drop_segments(set(chosen), self.clock.now_ms(), end_drop)

    def _fill_disk(self) -> None:
        self.counts["full_disks"] += 1
        spare, self.disk.free_bytes = self.disk.free_bytes, self.rng.randint(0, 3000)
        try:
            for _ in range(self.rng.randint(1, 10)):
                if self._is_offline or self.disk.has_dropped:
                    break
                self.rng.choice(
                    (
                        self._append,
                        self._append_idempotent,
                        self._append_transactional,
                        self._end_transaction,
                        self._checkpoint,
                        self._retain,
                        self._truncate,
                        self._drop_finished,
                        self.threads.step,
                    )
                )()
        finally:
            self.disk.free_bytes += spare
        self._check_all()

    # -- faults

    def _arm(self) -> None:
        self.disk.die_after(self.rng.randint(1, 12))

    def _reopen(self) -> None:
        self.threads.run_all()
        try:
            self.log.close()
        except StorageError:
            assert self.disk.failed_syncs
            self._is_offline = True
        if self._is_offline:
            return
        self.disk.restart()
        self.log = self._open()
        self.counts["clean_restarts"] += 1
        if self.disk.failed_syncs > self._failed_syncs:
            self._adopt(lost_power=True)
            return
        self.model.synced_end = self.high_watermark = self.model.end
        self._relearn_producers()
        self._check_all()

    def _fail_sync(self) -> None:
        self.disk.fail_sync_after(self.rng.randint(1, 5))

    def _restart_offline(self) -> None:
        """The process is restarted, in the same boot: what was not synced may be gone as after power loss."""
        self.counts["failed_syncs"] += 1
        self.disk.restart()
        self.log = self._open()
        self._adopt(lost_power=True)

    def _recover_from_kill(self) -> None:
        self.counts["kills"] += 1
        self.disk.restart()
        self.log = self._open()
        self._adopt(lost_power=self.disk.failed_syncs > self._failed_syncs)

    def _lose_power(self) -> None:
        self.counts["power_losses"] += 1
        self.disk.lose_power()
        self.boot += 1
        self.log = self._open()
        self._adopt(lost_power=True)

    def _adopt(self, lost_power: bool) -> None:
        """The batch in progress may have been written; after power loss, what was not synced may be gone."""
        end = self.log.end_offset
        if self.pending is not None and end == self.model.end + len(self.pending.records):
            self._acknowledge(self.model.end)
        self.pending = None
        if self.truncating:
            self.truncating = False
            assert lost_power or end >= self.high_watermark, f"CommittedNeverLost: {end} < {self.high_watermark}"
            assert end in self.model.ends, "the log ends in the middle of a batch"
            self._cut(end)
        if lost_power:
            assert end >= self.model.synced_end, f"CommittedNeverLost: {end} < {self.model.synced_end}"
            assert end in self.model.ends, "the log ends in the middle of a batch"
            self._cut(end)
            if self.droppable and self.log.start_offset < self.model.start:
                # A trim came undone: producers of what was dropped before it need not be known any more.
                self.forgotten_to = max(self.forgotten_to, max(self.droppable) + 1)
            self.model.start = min(self.model.start, self.log.start_offset)
        assert end == self.model.end, f"CommittedNeverLost: the log ends at {end}, acknowledged {self.model.end}"
        assert self.log.start_offset >= self.model.start or self.compacted, "what was trimmed is back"
        self.model.start = max(self.model.start, self.log.start_offset)
        self.high_watermark = end
        self._failed_syncs = self.disk.failed_syncs
        self._relearn_producers()
        self._check_all()

    def _cut(self, end: int) -> None:
        self.model.cut(end)
        self._checked.clear()

    def _relearn_producers(self) -> None:
        """The model takes over what the log remembers, once it is shown to be right."""
        first = self.log.segments[0].base_offset
        for producer_id, known in list(self.model.producers.items()):
            remembered = self.log.producers.by_id.get(producer_id)
            known_from = max(first, self.model.expired.get(producer_id, 0), self.forgotten_to)
            in_log = [
                batch for batch in self.model.written if batch.producer_id == producer_id and batch.base >= known_from
            ]
            if remembered is None:
                assert not in_log, f"ProducersRemembered: producer {producer_id} was forgotten"
                assert self.model.open.get(producer_id, -1) < first, "an open transaction was forgotten"
                if producer_id in self.model.open:
                    self.model.lose_beginning(producer_id, -1)
                self.model.producers[producer_id] = ModelProducer(epoch=known.epoch + 1)
                continue
            if in_log:
                assert remembered.epoch == in_log[-1].epoch, f"ProducersRemembered: the epoch of {producer_id}"
            if remembered.epoch != known.epoch:
                known = self.model.producers[producer_id] = ModelProducer(epoch=remembered.epoch)
            self._relearn_transaction(producer_id, remembered.first_offset)
            offsets = [sent.base_offset for sent in remembered.batches]
            kept = [entry for entry in known.sent if entry[1] in offsets]
            data = [batch.base for batch in in_log if batch.marker is None and batch.epoch == remembered.epoch]
            assert data[-1:] in ([], offsets[-1:]), f"ProducersRemembered: the last batch of {producer_id}"
            known.sent = deque(kept, maxlen=5)
            known.next_sequence = remembered.batches[-1].last_sequence + 1 if remembered.batches else 0

    def _relearn_transaction(self, producer_id: int, found: int) -> None:
        """Of a transaction that began before the log does, power loss may take the beginning, or all of it.

        It may also bring back what was trimmed, but not a marker that was dropped from the middle of that.
        """
        if found >= 0:
            mine = [batch for batch in self.model.written if batch.producer_id == producer_id]
            gone = [batch.base for batch in mine if batch.marker and found < batch.base < self.forgotten_to]
            if gone:
                self.model.lose_markers(gone)
        expected = self.model.open.get(producer_id, -1)
        first = self.log.segments[0].base_offset
        if 0 <= expected < first:
            bases = [batch.base for batch in self.model.parts[producer_id]]
            is_gone = found < 0 and bases[-1] < first
            assert found in bases or is_gone, f"a transaction of {producer_id} begins at {found}, not in {bases}"
            self.model.lose_beginning(producer_id, found)
        else:
            assert found == expected, f"producer {producer_id} has a transaction from {found}, not from {expected}"

    # -- checks

    def _read(self) -> None:
        """A read from anywhere gives what the model has there, first of all the record asked for."""
        if self.log.end_offset == self.log.start_offset:
            return
        offset = self.rng.randint(self.log.start_offset, self.log.end_offset - 1)
        data = self.log.read(offset, self.rng.choice((1, 500, 100_000)), self.log.end_offset)
        found = [record for at, _ in batches(data) for record in read_records(data[at:])]
        is_whole = not self.compacted and offset not in self.droppable
        if is_whole:
            assert found, f"nothing was read at {offset}"
        for record in found:
            self._same(record)
        after = [record.offset for record in found if record.offset >= offset]
        if is_whole:
            assert after[0] == offset
        self._find_by_time()

    def _find_by_time(self) -> None:
        if self.compacted or self.droppable:
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

    def _offsets(self, batch: bytes, header: BatchHeader) -> tuple[int, ...]:
        """Those of a batch's records, once these are shown to be right."""
        if not header.count:
            return ()
        key = header.base_offset, header.crc
        known = self._checked.get(key)
        if known is None:
            for record in (records := read_records(batch)):
                self._same(record)
            known = self._checked[key] = tuple(record.offset for record in records)
        return known

    def _check_all(self) -> None:
        """Read the log from its start to its end and compare."""
        if self._is_offline or self.disk.has_dropped:
            return
        offset = self.log.start_offset
        seen: set[int] = set()
        last = offset - 1
        while data := bytes(self.log.read(offset, 50_000, self.log.end_offset)):
            for at, header in batches(data):
                check_batch(data, at, header)
                assert header.base_offset > last or header.last_offset >= offset
                first = max(header.base_offset, self.log.start_offset)  # a trim may go through a batch
                assert self.log.epochs.at(first) == header.leader_epoch, "EpochsRemembered"
                last = header.last_offset
                seen.update(self._offsets(data[at : at + header.size_bytes], header))
            offset = last + 1
        start, end = self.log.start_offset, self.log.end_offset
        expected = {number for number in self.model.records if start <= number < end}
        stable = self._check_committed()
        if not self.compacted:
            found = {number for number in seen if number >= start}
            assert expected - self.droppable <= found <= expected, "OffsetsContiguous"
            return
        latest = {self.model.records[number].key: number for number in sorted(self.model.counting(start, stable))}
        for number in latest.values():
            if self.model.records[number].value is not None:
                assert number in seen, f"compaction lost offset {number}, the last of its key"
        assert expected.difference(range(stable)) <= seen, "compaction took what was not decided"

    def _check_committed(self) -> int:
        """NoAbortedRead: read as a consumer of committed records does. The last stable offset."""
        start = self.log.start_offset
        stable = self.log.last_stable_offset(self.high_watermark)
        wanted = self.model.stable(self.high_watermark, start)
        assert stable in wanted, f"NoAbortedRead: the last stable offset is {stable}, not in {wanted}"
        first = self.rng.choice((start, self.rng.randint(start, stable)))
        found = self._read_committed(first, stable)
        counting = self.model.counting(first, stable)
        assert found <= counting, f"NoAbortedRead: offsets {sorted(found - counting)} were not committed"
        if not self.compacted:
            hidden = counting - found - self.droppable
            assert not hidden, f"NoAbortedRead: offsets {sorted(hidden)} are hidden"
        else:
            latest = {self.model.records[number].key: number for number in sorted(counting)}
            kept = {number for number in latest.values() if self.model.records[number].value is not None}
            assert kept <= found, f"NoAbortedRead: offsets {sorted(kept - found)} are hidden"
        self.counts["held_back"] += stable < self.high_watermark
        return stable

    def _read_committed(self, offset: int, stable: int) -> set[int]:
        """Offsets of the records that a consumer keeps, fetch by fetch."""
        first = offset
        found: set[int] = set()
        while data := bytes(self.log.read(offset, self.rng.choice((600, 5000, 50_000)), stable)):
            whole = list(batches(data))
            coming = deque(self.log.aborted_between(offset, whole[-1][1].next_offset))
            skipped: set[int] = set()
            for at, header in whole:
                while coming and coming[0].first_offset <= header.last_offset:
                    skipped.add(coming.popleft().producer_id)
                if header.is_control:
                    marker = read_marker(data[at : at + header.size_bytes])
                    if marker is not None and not marker.committed:
                        skipped.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in skipped):
                    found.update(self._offsets(data[at : at + header.size_bytes], header))
            assert not coming, "a transaction that does not begin in the range was listed"
            offset = whole[-1][1].next_offset
        return {number for number in found if number >= first}
