"""A broker process of the disk simulation of queues: one real queue partition and its companion on a fake disk.

Real are the logs, recovery, the flusher, the queue machine and its runtime, reads ahead, deduplication, and the
reclaimer. Disk jobs run on FakeThreads: appends, trims and acknowledgements happen while a sync or a drop is under
way.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from types import SimpleNamespace
from typing import Any, Final, Protocol

from penstock.broker.queues.deduplication import DeduplicationIndex
from penstock.broker.queues.message_appender import MessageAppender
from penstock.broker.queues.partition import QueuePartition
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.reclamation import Reclaimer
from penstock.cluster.partition_state import PartitionState
from penstock.foundation.ids import TopicIdPartition, TopicPartition
from penstock.log import compaction
from penstock.log.io_queue import IoQueue, Outcome
from penstock.log.log import Log
from penstock.log.recovery import open_log
from penstock.log.settings import LogSettings
from penstock.queues.commands import SetPosition
from penstock.queues.machine import QueueMachine
from penstock.replication.flusher import Flusher
from penstock.replication.partition import Partition
from penstock.replication.runtime import StateRuntime
from tests.simulation.clock import FakeClock
from tests.simulation.disk import FakeDisk
from tests.simulation.threads import FakeThreads

TOPIC_ID: Final = b"queue-topic-id!!"
COMPANION_ID: Final = b"queue-companion!"
NAME: Final = TopicPartition("jobs", 0)
PLACE: Final = TopicIdPartition(TOPIC_ID, 0)
GROUP: Final = "jobs"


class World(Protocol):
    clock: FakeClock
    disk: FakeDisk
    threads: FakeThreads
    settings: LogSettings
    folder: str
    is_fifo: bool
    window_ms: int
    """For how long ids are remembered."""

    def later(self, ms: float, action: Callable[[], None]) -> Callable[[], None]:
        """Runs an action of this process later; returns what cancels it."""

    def plant(self, node: "QueueDiskNode") -> None:
        """Plants a bug, if one is to be found."""


class QueueDiskNode:
    """One process, from the opening of its logs to a kill or a power loss."""

    def __init__(self, world: World, boot_id: str, epoch: int) -> None:
        self._world = world
        self.flusher = Flusher()
        self._is_compacting = False
        log, companion = (
            self._open(name, settings, boot_id)
            for name, settings in (("log", world.settings), ("companion", world.settings.for_companion()))
        )
        self.partition = Partition(
            topic_id=TOPIC_ID, name=NAME, leader_epoch=-1, log=log, high_watermark=log.start_offset
        )
        self.companion = Partition(
            topic_id=COMPANION_ID,
            name=NAME,
            leader_epoch=-1,
            log=companion,
            high_watermark=companion.start_offset,
            companion_of=self.partition,
        )
        self.partition.take_companion(self.companion)
        for one in self.partition.with_companion:
            one.is_leader = False
            one.on_append = self.flusher.flush_soon
        partitions: Any = SimpleNamespace(by_id={TOPIC_ID: {0: self.partition}}, replicas={})
        self.queue_partitions = QueuePartitions(
            partitions=partitions, clock=world.clock, timer=self.timer, threads=Executor()
        )
        self.reclaimer = self._new_reclaimer(partitions)
        self.appender = MessageAppender(clock=world.clock, timer=self.timer)
        self._duplicates: DeduplicationIndex | None = None
        world.plant(self)
        state = PartitionState(replicas=(1,), leader=1, leader_epoch=epoch, isr=(1,), version=epoch)
        self.partition.lead(state, 1, 1000, world.clock.steady_ms())
        self._load()

    def _open(self, folder: str, settings: LogSettings, boot_id: str) -> Log:
        now_ms = self._world.clock.now_ms()
        path = f"{self._world.folder}/{folder}"
        log = open_log(self._world.disk, path, settings, boot_id=boot_id, now_ms=now_ms).log
        log.io = IoQueue(self._world.threads.run)
        return log

    def _load(self) -> None:
        runtime = StateRuntime(
            partition=self.companion,
            machine=QueueMachine(),
            clock=self._world.clock,
            timer=self.timer,
            threads=Executor(),
            perform=lambda effect: None,
        )

        def ready() -> None:
            if runtime.is_loaded:
                machine = runtime.machine
                assert isinstance(machine, QueueMachine)
                if machine.group(GROUP) is None:
                    runtime.post(SetPosition(GROUP, 0))
                self.queue_partitions._on_ready(PLACE, runtime)

        while runtime.read_back():
            pass
        runtime.begin_when_committed(ready)

    @property
    def queue(self) -> QueuePartition | None:
        """None until the delivery state has been read back, and everything in both logs is committed."""
        return self.queue_partitions.by_tp.get(PLACE)

    def duplicates(self, queue: QueuePartition) -> DeduplicationIndex:
        """The ids of the last five minutes, loaded before the first message with an id, as `QueueRouter` does."""
        found = self._duplicates
        purged_to = queue.purges.purged_to(GROUP)
        if found is None:
            clock = self._world.clock
            found = self._duplicates = DeduplicationIndex(
                self.partition,
                is_by_group=False,
                clock=clock,
                threads=Executor(),
                window_ms=self._world.window_ms,
            )
            found.forget_below(purged_to)
            while found.read_back():
                pass
        found.forget_below(purged_to)
        return found

    def timer(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        return self._world.later(seconds * 1000, action)

    # -- maintenance

    def _new_reclaimer(self, partitions: Any) -> Reclaimer:
        topic = SimpleNamespace(topic_id=TOPIC_ID, is_queue=True)
        settings = SimpleNamespace(is_fifo=self._world.is_fifo)
        queue = SimpleNamespace(topic_id=TOPIC_ID, name=GROUP, settings=settings)
        image = SimpleNamespace(topics={TOPIC_ID: topic}, queues={GROUP: queue})
        return Reclaimer(
            queue_partitions=self.queue_partitions,
            partitions=partitions,
            image=lambda: image,  # type: ignore[arg-type,return-value]
            clock=self._world.clock,
            deduplication_ms=self._world.window_ms,
        )

    def maintain(self) -> None:
        """Saves checkpoints and syncs closed segments, as the maintenance of a broker does every second."""
        for one in self.partition.with_companion:
            if one.is_online:
                if one.log.checkpoint_is_stale:
                    one.log.save_checkpoint()
                if one.log.has_unsynced_segments:
                    self.flusher.flush_soon(one)

    def sync(self) -> None:
        for one in self.partition.with_companion:
            self.flusher.flush_soon(one)

    def compact(self, then: Callable[[int], None]) -> None:
        """Compacts the companion log; `then` gets how many records went."""
        log, mark = self.companion.log, self.companion.high_watermark
        job = compaction.plan(log, self._world.clock.now_ms(), mark, 1000, bytes(16))
        if job is None or self._is_compacting:  # one at a time, as in a broker
            return
        result = job.run()
        self._is_compacting = True

        def installed(outcome: Outcome) -> None:
            self._is_compacting = False
            then(result.records_before - result.records_after if outcome.result() else 0)

        job.install(log, result, installed)
