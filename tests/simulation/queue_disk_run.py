"""One seeded run of a queue partition on a disk that tears writes and loses power.

Messages and delivery state are on real logs with small segments, which roll, are trimmed, reclaimed and compacted
while syncs run on threads. Each run has flush=group or flush=os. The invariants:
- PartitionOnline: after every kill and every power loss the logs can be opened, and no flush fails;
- NoMessageLost: a message whose send was acknowledged, and that no worker asked to delete, is in the
  log as it was sent, and the delivery state does not take it for finished. With flush=os a power loss ends that
  promise for what was sent before;
- AckedMessageNeverRedelivered: after an acknowledged deletion a message is not delivered again, with that exception;
- OffsetsNeverReused: what is read at an offset is what was appended there;
- PurgeForgetsIds: after a purge that was answered, a message with the id of one from before it is taken;
- TakenOnce: a message with the id of another one that was sent of late is not taken, unless that was purged, and is
  never delivered again. Both have the exception of flush=os.
Once the faults stop, every message is delivered and deleted, and the log is reclaimed (EverythingEnds).
"""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from penstock.broker.queues.messages import Delivered, NewMessage
from penstock.broker.queues.partition import ReceiveRequest
from penstock.foundation.errors import PenstockError, StorageError
from penstock.log.settings import Flush, LogSettings
from penstock.queues.commands import Acknowledge, Acknowledgement, AckType
from penstock.queues.errors import AlreadyFinished
from penstock.records.batch import batches
from penstock.records.build import Record, build_batch, read_records
from tests.simulation.clock import FakeClock
from tests.simulation.disk import FakeDisk, Killed
from tests.simulation.queue_disk_bugs import plant_bug
from tests.simulation.queue_disk_node import GROUP, QueueDiskNode
from tests.simulation.threads import FakeThreads

CALM_STEPS = 6000


@dataclass(eq=False, slots=True)
class Sent:
    """A message as its producer and its workers know it."""

    value: bytes
    offset: int = -1
    """-1: not known; it may be in the log or not."""
    is_acked: bool = False
    """Its send was acknowledged, and no power loss since may have lost it."""
    is_deletion_asked: bool = False
    is_deleted: bool = False
    """Its deletion was acknowledged."""
    deduplication_id: str = ""
    sent_ms: int = 0
    is_purged: bool = False
    """Its deletion was requested, with unknown outcome."""
    is_replaced: bool = False
    """Another message was taken under its id, though it was sent of late."""
    is_void: bool = False
    """It was sent before a power loss with flush=os, which may also have taken back a purge of an older message with
    its id: that is then the one that holds the id, and for less long."""


class QueueDiskRun:
    def __init__(self, seed: int, steps: int, *, bug: str = "") -> None:
        self.rng = Random(seed)
        self._steps = steps
        self._bug = bug
        self.clock = FakeClock()
        self.disk = FakeDisk(Random(self.rng.random()))
        self.threads = FakeThreads(Random(self.rng.random()))
        self.counts: Counter[str] = Counter()
        self.settings = LogSettings.of(
            {
                "flush": "group" if bug else self.rng.choice(("group", "group", "os")),
                "segment.bytes": str(self.rng.choice((1024, 1024, 2048, 8192))),
                "index.interval.bytes": str(self.rng.choice((0, 256, 4096))),
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "delete.retention.ms": "1000",
                "min.cleanable.dirty.ratio": "0.1",
            }
        )
        self._is_calm = False
        self._incarnation = 0
        self._boot = 0
        self._numbers = count()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._sent: dict[int, Sent] = {}
        self._by_offset: dict[int, int] = {}
        self._held: list[tuple[int, Delivered]] = []
        """Which message a worker has, and how it came."""
        self._visibility_ms = self.rng.choice((50, 500, 2000))
        self._deletes_part = self.rng.choice((0.3, 0.7, 0.95))
        self._purged_to = 0
        """Up to where the queue was purged, by acknowledged purges."""
        self.is_fifo = self.rng.random() < 0.5
        self.window_ms = self.rng.choice((2000, 10_000))
        self._purge_weight = self.rng.choice((0.0, 0.3, 1.0))
        self._node: QueueDiskNode | None = None
        self._has_holes = False
        self._power_in = 0
        """Loses power when it is 1; counted down by each step of a thread."""
        self.folder = "queue-0"
        self._start()

    @property
    def faults(self) -> int:
        return self.counts["kills"] + self.counts["power_losses"]

    @property
    def node(self) -> QueueDiskNode:
        assert self._node is not None
        return self._node

    # -- the run

    def run(self) -> None:
        actions = [
            (self._send, 10),
            (self._send_once, 6 if self.is_fifo else 0),
            (self._purge, self._purge_weight),
            (self._receive, 10),
            (self._settle, 14),
            (self._step_threads, 25),
            (self._reclaim, 6),
            (lambda: self.node.maintain(), 1),
            (lambda: self.node.sync(), 2),
            (self._compact, 1),
            (self._roll, 1),
            (self._arm, 0.4),
            (self._kill, 0.3),
            (self._lose_power, 0.5),
            (self._recreate, 0.3),
        ]
        doing, weights = [action for action, _ in actions], [weight for _, weight in actions]
        for _ in range(self._steps):
            (action,) = self.rng.choices(doing, weights)
            self._step(self._lose_power if self._power_in == 1 else action)
        self._calm_down()

    def _step(self, action: Callable[[], object]) -> None:
        self.counts["steps"] += 1
        self.clock.advance(self.rng.choice((0, 1, 10, 60)))
        try:
            while self._timers and self._timers[0][0] <= self.clock.steady_ms():
                heapq.heappop(self._timers)[2]()
            action()
        except Killed:
            self.counts["torn_writes"] += 1
            self._kill()
        for one in self.node.partition.with_companion:
            assert one.is_online, f"PartitionOnline: {one.offline_reason}"

    def later(self, ms: float, action: Callable[[], None]) -> Callable[[], None]:
        incarnation, is_set = self._incarnation, True

        def run() -> None:
            if is_set and self._incarnation == incarnation:
                action()

        def cancel() -> None:
            nonlocal is_set
            is_set = False

        heapq.heappush(self._timers, (self.clock.steady_ms() + ms, next(self._numbers), run))
        return cancel

    def plant(self, node: QueueDiskNode) -> None:
        node.queue_partitions.on_ready.append(lambda found: self._poll_soon())
        plant_bug(self._bug, node, self.threads)

    def _calm_down(self) -> None:
        """The faults stop; workers delete all that they receive."""
        self._is_calm = True
        self.disk.disarm()
        self._deletes_part = 1.0
        for _ in range(CALM_STEPS):
            if self._is_over():
                break
            doing = (self._receive, self._settle, self.threads.step, self._reclaim, self.node.maintain)
            self._step(self.rng.choice(doing))
        left = [one for one in self._sent.values() if one.is_acked and not one.is_deletion_asked]
        assert not left, f"EverythingEnds: {left[:3]} were never delivered"
        assert self._is_over(), f"EverythingEnds: {len(self.node.partition.log.segments)} segments are left"
        self._check_log()

    def _is_over(self) -> bool:
        queue = self.node.queue
        delivery = queue.machine.group(GROUP) if queue is not None else None
        log = self.node.partition.log
        return (
            delivery is not None
            and not delivery.ranges
            and delivery.end >= log.end_offset
            and len(log.segments) <= 2
            and self.threads.is_idle
        )

    # -- producers and workers

    def _send(self) -> None:
        uids = [len(self._sent) + row for row in range(self.rng.choice((1, 1, 2, 5)))]
        padding = b"." * self.rng.choice((0, 100, 300))
        for uid in uids:
            self._sent[uid] = Sent(b"%d " % uid + padding)
        now_ms = self.clock.now_ms()
        batch = build_batch([Record(key=None, value=self._sent[uid].value, timestamp_ms=now_ms) for uid in uids])
        partition = self.node.partition
        appended = partition.append(batch, now_ms)
        for row, uid in enumerate(uids):
            self._place(uid, appended.base_offset + row)
        end = appended.last_offset + 1

        def committed() -> None:
            if partition.has_committed(end):
                for uid in uids:
                    self._sent[uid].is_acked = True
                self.counts["acked"] += len(uids)

        partition.when_committed(end, committed)

    def _send_once(self) -> None:
        """Sends a message under one of a few ids, as SendMessage to a FIFO queue does it."""
        node, queue = self.node, self.node.queue
        if queue is None:
            return
        uid, name = len(self._sent), f"id-{self.rng.randrange(5)}"
        now_ms = self.clock.steady_ms()
        sent = self._sent[uid] = Sent(b"%d " % uid, deduplication_id=name, sent_ms=now_ms)
        message, end = NewMessage(sent.value, deduplication_id=name), node.partition.log.end_offset
        duplicates = node.duplicates(queue)
        before = duplicates.find(message, now_ms)
        assert before is None or before >= self._purged_to, (
            f"PurgeForgetsIds: {sent} repeats {before}, the queue was purged up to {self._purged_to}"
        )

        def committed(found: Any) -> None:
            if not isinstance(found, PenstockError) and not found[0].is_duplicate:
                sent.is_acked = True
                self.counts["acked"] += 1

        node.appender.send(node.partition, [message], committed, duplicates)
        self.counts["duplicates"] += before is not None
        if node.partition.log.end_offset > end:
            self._place(uid, end)
            for other in self._sent.values():
                is_late = now_ms - other.sent_ms < self.window_ms and not other.is_void
                if other is not sent and other.deduplication_id == name and is_late:
                    assert other.is_purged or not other.is_acked, f"TakenOnce: {sent} is taken after {other}"
                    other.is_replaced = True

    def _purge(self) -> None:
        queue, end = self.node.queue, self.node.partition.last_stable_offset
        if queue is None:
            return
        meant = [sent for sent in self._sent.values() if 0 <= sent.offset < end]
        for sent in meant:
            sent.is_deletion_asked = sent.is_purged = True

        def purged(reply: Any) -> None:
            if not isinstance(reply, PenstockError):
                self.counts["purges"] += 1
                self._purged_to = max(self._purged_to, end)
                for sent in meant:
                    sent.is_deleted = True

        queue.purges.purge(GROUP, forgets_ids=True, then=purged)

    def _place(self, uid: int, offset: int) -> None:
        assert offset not in self._by_offset, f"OffsetsNeverReused: {offset} is given to {uid}"
        self._sent[uid].offset = offset
        self._by_offset[offset] = uid

    def _receive(self) -> None:
        if self.node.queue is not None:
            receive_request = ReceiveRequest(
                GROUP, f"w{next(self._numbers)}", self.rng.choice((1, 3, 10)), self._visibility_ms
            )
            self.node.queue.receive(receive_request, self._received)

    def _poll_soon(self) -> None:
        """Some workers wait in long polls: they get messages as soon as a leader serves the queue."""
        for _ in range(self.rng.choice((0, 1, 3))):
            self.later(0, self._receive)

    def _received(self, found: list[Delivered] | PenstockError) -> None:
        if isinstance(found, PenstockError):
            return
        for delivered in found:
            self.counts["deliveries"] += 1
            uid = self._by_offset[delivered.offset]
            sent = self._sent[uid]
            assert delivered.value == sent.value, f"OffsetsNeverReused: {delivered} is not {sent}"
            assert not sent.is_deleted, f"AckedMessageNeverRedelivered: {sent}"
            assert not sent.is_replaced, f"TakenOnce: {sent} is delivered, and so is another with its id"
            self._held.append((uid, delivered))

    def _settle(self) -> None:
        """Deletes or releases a few messages that workers hold; some they forget."""
        self.rng.shuffle(self._held)
        count = len(self._held) if self._is_calm else 4
        some, self._held = self._held[:count], self._held[count:]
        if not some or self.node.queue is None:
            return
        items: dict[int, Acknowledgement] = {}
        for uid, one in some:
            is_done = self.rng.random() < self._deletes_part
            if is_done:
                self._sent[uid].is_deletion_asked = True
            if is_done or self.rng.random() < 0.5:
                ack_type = AckType.DONE if is_done else AckType.RELEASE
                items[uid] = Acknowledgement(one.offset, one.offset, one.holder, ack_type)
        if items:
            command = Acknowledge(GROUP, tuple(items.values()))
            self.node.queue.acknowledge(command, lambda errors: self._settled(items, errors))

    def _settled(self, items: dict[int, Acknowledgement], errors: Any) -> None:
        if isinstance(errors, PenstockError):
            return
        for (uid, item), error in zip(items.items(), errors, strict=True):
            if item.ack_type is AckType.DONE and (error is None or isinstance(error, AlreadyFinished)):
                self.counts["deleted"] += 1
                self._sent[uid].is_deleted = True

    # -- maintenance

    def _step_threads(self) -> None:
        self._power_in -= self._power_in > 1
        self.threads.step()

    def _reclaim(self) -> None:
        log = self.node.partition.log
        before, start = len(log.segments), log.start_offset
        self.node.reclaimer.tick()
        self.counts["trims"] += log.start_offset > start
        has_holes = log.checkpoint.has_holes
        self.counts["first_drops"] += has_holes and not self._has_holes
        if has_holes and not self._has_holes and not self._is_calm and self.rng.random() < 0.8:
            # The first time that offsets go missing is the risky one: the marks of the gap may not be durable yet.
            self._power_in = self.rng.randint(2, 10)
        self._has_holes = has_holes
        self.counts["drops"] += len(log.segments) < before

    def _compact(self) -> None:
        self.node.compact(lambda gone: self.counts.update(compacted=gone))

    def _roll(self) -> None:
        self.node.partition.log.roll(self.clock.now_ms())

    # -- faults

    def _arm(self) -> None:
        self.disk.die_after(self.rng.randint(1, 25))

    def _kill(self) -> None:
        self.counts["kills"] += 1
        self.disk.restart()
        self._start()

    def _lose_power(self) -> None:
        self.counts["power_losses"] += 1
        self.disk.lose_power()
        self._boot += 1
        self._power_in = 0
        if self.settings.flush is Flush.OS:
            self._held.clear()  # their receipts may be void: the leader may not know that it has delivered them
            self._purged_to = 0
            for sent in self._sent.values():
                sent.is_acked = sent.is_deleted = sent.is_replaced = False
                sent.is_void = True
        self._start()

    def _start(self) -> None:
        """Starts processes until one has opened its logs without being killed."""
        while True:
            self._incarnation += 1
            self._timers.clear()
            self.threads.clear()
            self._node = None
            try:
                self._node = QueueDiskNode(self, f"boot-{self._boot}", self._incarnation)
            except Killed:
                self.disk.restart()
                continue
            except StorageError as error:
                raise AssertionError(f"PartitionOnline: {error}") from error
            break
        self._check_log()

    def _recreate(self) -> None:
        """The queue is deleted, and another one is made."""
        self.counts["recreations"] += 1
        with self.disk.looked_at():  # how a removal is finished after a kill is the cluster simulation's concern
            self.disk.remove(self.folder)
        self.folder = f"queue-{self._incarnation}"
        self._has_holes = False
        self._power_in = 0
        self._sent.clear()
        self._by_offset.clear()
        self._held.clear()
        self._purged_to = 0
        self.disk.restart()
        self._start()

    # -- what must hold

    def _check_log(self) -> None:
        """Compares the log with what was sent, after the loss of a tail that was not acknowledged."""
        log = self.node.partition.log
        for offset in [known for known in self._by_offset if known >= log.end_offset]:
            sent = self._sent[self._by_offset.pop(offset)]
            sent.offset = -1
            assert not sent.is_acked, f"NoMessageLost: {sent} was at {offset}, the log ends at {log.end_offset}"
        seen = set()
        offset = log.start_offset
        self.counts["gaps"] += any(
            one.end_offset < following.base_offset
            for one, following in zip(log.segments, log.segments[1:], strict=False)
        )
        with self.disk.looked_at():
            while data := bytes(log.read(offset, 100_000, log.end_offset)):
                for at, header in batches(data):
                    for record in read_records(data[at : at + header.size_bytes]):
                        seen.add(record.offset)
                        self._check_record(record)
                    offset = header.next_offset
        for sent in self._sent.values():
            if sent.is_acked and not sent.is_deletion_asked:
                assert sent.offset in seen, f"NoMessageLost: {sent} is not in the log"
        self._check_delivery_state()

    def _check_record(self, record: Record) -> None:
        uid = int((record.value or b"").partition(b" ")[0])
        if record.offset not in self._by_offset:
            self._place(uid, record.offset)  # it was being appended when the process was killed
        sent = self._sent[self._by_offset[record.offset]]
        assert record.value == sent.value, f"OffsetsNeverReused: {record} is not {sent}"

    def _check_delivery_state(self) -> None:
        queue = self.node.queue
        delivery = queue.machine.group(GROUP) if queue is not None else None
        if delivery is None:
            return
        waiting: set[int] = set()
        for delivery_range in delivery.ranges.values():
            waiting.update(range(delivery_range.first, delivery_range.last + 1))
        for sent in self._sent.values():
            if sent.is_acked and not sent.is_deletion_asked and sent.offset < delivery.end:
                assert sent.offset in waiting, f"NoMessageLost: {sent} is taken for finished"
