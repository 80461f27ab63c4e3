"""A broker of the simulation of delays: a real partition, its real companion, the real machine and what runs it.

Syncs, truncation, removals and the exchange of compacted segments run on threads that take their time.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from itertools import count
from random import Random
from typing import Any, Final, Protocol

from penstock.broker.delays.partition import DelayPartition
from penstock.broker.delays.stats import DelayStats
from penstock.broker.delays.visibility_filter import VisibilityFilter
from penstock.cluster.partition_state import PartitionState
from penstock.delays.machine import DelayMachine
from penstock.delays.run_storage import MemoryRunStorage
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import NotCoordinator, OffsetOutOfRange, PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.log import compaction
from penstock.log.io_queue import IoQueue, Outcome
from penstock.log.last_run import LastRun
from penstock.log.log import Log
from penstock.log.recovery import open_log
from penstock.log.settings import Flush, LogSettings
from penstock.replication.fetch_link import FetchLink
from penstock.replication.flusher import Flusher
from penstock.replication.follower_fetch import serve_follower
from penstock.replication.partition import Partition
from penstock.replication.runtime import StateRuntime
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.simulation.clock import FakeClock
from tests.simulation.disk import FakeDisk

TOPIC_ID: Final = b"delayed-topic-id"
COMPANION_ID: Final = b"its-companion-id"
NAME: Final = TopicPartition("orders", 0)
LAG_MS: Final = 700
FOLLOW_MS: Final = 60
SETTINGS: Final = {"delayed.messages": "true", "segment.bytes": "2048", "min.insync.replicas": "1"}
MAINTENANCE_MS: Final = 120


class World(Protocol):
    clock: FakeClock
    flush: str
    new_partition: Callable[..., Partition]

    def later(self, node: "DelayNode", ms: float, action: Callable[[], None]) -> Callable[[], None]: ...

    def plant(self, hosted: DelayPartition) -> None:
        """Make a mistake in it, if one is to be found."""


class DelayNode:
    """One process at a time; its disk outlives it."""

    def __init__(self, node_id: int, world: World, rng: Random) -> None:
        self.node_id = node_id
        self._world = world
        self._rng = rng
        self.disk = FakeDisk(Random(rng.random()))
        self.boots = 0
        """How often its machine has lost power."""
        self.is_doubtful = False
        """Whether it may lack what was acknowledged, and is still counted on."""
        self._settings = LogSettings.of({**SETTINGS, "flush": world.flush})
        self.epochs = count(1000 * node_id)
        self.epoch = -1
        self.is_up = False
        self.is_cut = False
        """Whether it is cut off from all others."""
        self.hosted: DelayPartition | None = None
        self.leader = -1
        self.is_asking = False

    # -- living

    def start(self) -> None:
        self.is_up, self.is_cut, self.is_asking = True, False, False
        self.epoch = next(self.epochs)
        clock, new_partition = self._world.clock, self._world.new_partition
        boot_id = f"boot-{self.boots}"
        self._last_run = LastRun(self.disk, boot_id)
        self._flusher = Flusher()
        self._is_compacting = False
        self._heard: PartitionState | None = None
        log, companion = (
            self._open(name, settings, boot_id)
            for name, settings in (("topic", self._settings), ("companion", self._settings.for_companion()))
        )
        self.partition = new_partition(
            topic_id=TOPIC_ID, name=NAME, leader_epoch=-1, log=log, high_watermark=log.start_offset
        )
        self.companion = new_partition(
            topic_id=COMPANION_ID,
            name=NAME,
            leader_epoch=-1,
            log=companion,
            high_watermark=companion.start_offset,
            companion_of=self.partition,
        )
        for one in (self.partition, self.companion):
            one.on_append = self._flusher.flush_soon
            one.on_returned = self._hear_again
        self.partition.is_leader = self.companion.is_leader = False
        self.partition.take_companion(self.companion)
        self.visibility = self.partition.visibility = VisibilityFilter(
            self.partition, lambda: self.machine, clock, self.timer
        )
        self.runtime = self._new_runtime()
        self.link = FetchLink(self.node_id, uses_sessions=False)
        self._world.later(self, FOLLOW_MS, self._read_along)
        self._world.later(self, MAINTENANCE_MS, self._maintain)

    def _open(self, folder: str, settings: LogSettings, boot_id: str) -> Log:
        log = open_log(self.disk, folder, settings, boot_id=boot_id, now_ms=self._world.clock.now_ms()).log
        log.io = IoQueue(self._on_thread)
        return log

    def _on_thread(self, work: Callable[[], Any], done: Callable[[Outcome], None]) -> None:
        """Runs work after a while, and tells of its end after another one."""

        def ran() -> None:
            outcome = Outcome.of(work)
            self._world.later(self, self._rng.choice((0, 1, 10)), lambda: done(outcome))

        self._world.later(self, self._rng.choice((0, 1, 5, 30)), ran)

    @property
    def may_lack(self) -> bool:
        """Whether what others count on may be gone: the machine lost power, and the topic is not synced in time."""
        return self._last_run.lost_power and self._settings.flush is Flush.OS

    def report_loss(self) -> None:
        """It has left the ISR, or may stay in it."""
        self._last_run.mark_loss_reported()
        self.is_doubtful = False

    def lose_power(self) -> None:
        self.stop()
        self.disk.lose_power()
        self.boots += 1
        self.is_doubtful |= self._settings.flush is Flush.OS

    @property
    def is_online(self) -> bool:
        """Not while a thread truncates one of its logs."""
        return self.is_up and all(one.is_online for one in self.partition.with_companion)

    def stop(self) -> None:
        self.is_up = False
        self.hosted = None

    def timer(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        return self._world.later(self, seconds * 1000, action)

    @property
    def machine(self) -> DelayMachine:
        assert isinstance(self.runtime.machine, DelayMachine)
        return self.runtime.machine

    def _new_runtime(self) -> StateRuntime:
        return StateRuntime(
            partition=self.companion,
            machine=DelayMachine(MemoryRunStorage(), run_entries=self._rng.choice((3, 8, 1 << 16))),
            clock=self._world.clock,
            timer=self.timer,
            threads=Executor(),
            perform=self._perform,
        )

    def _perform(self, effect: Any) -> None:
        if self.hosted is not None:
            self.hosted.perform(effect)

    def _read_along(self) -> None:
        self._world.later(self, FOLLOW_MS, self._read_along)
        if not self.partition.is_leader and self.is_online:
            if self.runtime.has_diverged:
                self.runtime = self._new_runtime()
            while self.runtime.follow():
                pass

    # -- leading and following

    def hear(self, state: PartitionState) -> None:
        """The leader, from the store."""
        if not self.is_online:
            assert any(one.is_lent for one in self.partition.with_companion), f"PartitionOnline: {self._reasons()}"
            self._heard = state
            return
        if state.leader_epoch < self.partition.leader_epoch:
            return
        now_ms = self._world.clock.steady_ms()
        if state.leader == self.node_id:
            if state.leader_broker_epoch != self.epoch:
                return  # it was elected in a incarnation that is over
            is_new = not self.partition.is_leader or self.partition.leader_epoch != state.leader_epoch
            self.leader = self.node_id
            self._follow(False)
            self.partition.lead(state, self.node_id, LAG_MS, now_ms)
            if is_new:
                self._take_over()
            return
        was_leader = self.partition.is_leader
        self.partition.become_follower(state, self.node_id)
        self.leader = state.leader
        self._follow(self.partition.following is not None)
        if was_leader:
            self._give_up()

    def _follow(self, is_following: bool) -> None:
        for one in self.partition.with_companion:
            if is_following:
                self.link.put(one)
            else:
                self.link.drop(one)

    def _reasons(self) -> str:
        return " ".join(one.offline_reason for one in self.partition.with_companion)

    def _hear_again(self) -> None:
        """A log is back that was being truncated."""
        state, self._heard = self._heard, None
        if state is not None:
            self.hear(state)

    def _take_over(self) -> None:
        self._close()
        if self.runtime.is_loaded or self.runtime.has_diverged:
            self.runtime = self._new_runtime()
        runtime = self.runtime

        def load() -> None:
            if self.runtime is not runtime or not self.partition.is_leader:
                return
            while runtime.read_back():
                pass
            runtime.begin_when_committed(ready)

        def ready() -> None:
            if runtime.is_loaded and self.runtime is runtime and self.hosted is None:
                self.hosted = DelayPartition(
                    partition=self.partition,
                    runtime=runtime,
                    visibility=self.visibility,
                    clock=self._world.clock,
                    timer=self.timer,
                    threads=Executor(),
                    stats=DelayStats(),
                )
                self._world.plant(self.hosted)
                self.hosted.start()

        self._world.later(self, self._rng.randint(0, 30), load)

    def _give_up(self) -> None:
        self._close()
        self.runtime.close(NotCoordinator("another broker leads now"))
        self.runtime = self._new_runtime()

    def _close(self) -> None:
        if self.hosted is not None:
            self.hosted.close()
            self.hosted = None

    # -- replicating

    def request(self) -> FetchRequest | None:
        now_ms = self._world.clock.steady_ms()
        return self.link.request(broker_epoch=self.epoch, max_wait_ms=0, max_bytes=1 << 20, now_ms=now_ms)

    def serve(self, request: FetchRequest) -> FetchResponse:
        assert request.replica_state is not None
        topics = []
        for topic in request.topics:
            one = self.partition if topic.topic_id == TOPIC_ID else self.companion
            answers = []
            for wanted in topic.partitions:
                code, start = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                try:
                    if one.is_leader:
                        now_ms, limit = self._world.clock.steady_ms(), self._rng.choice((300, 1 << 20))
                        args = (one, wanted, request.replica_state, limit, now_ms)
                        answers.append(serve_follower(*args, force=True, blocking=True))
                        continue
                except PenstockError as error:
                    code = error.code
                    start = one.log.start_offset if isinstance(error, OffsetOutOfRange) else -1
                answers.append(
                    PartitionData(
                        partition_index=wanted.partition,
                        error_code=code,
                        high_watermark=-1,
                        log_start_offset=start,
                        aborted_transactions=None,
                        records=b"",
                    )
                )
            topics.append(FetchableTopicResponse(topic_id=topic.topic_id, partitions=answers))
        return FetchResponse(throttle_time_ms=0, responses=topics)

    # -- maintenance

    def _maintain(self) -> None:
        """Saves checkpoints and has closed segments synced, as the maintenance of a broker does."""
        self._world.later(self, MAINTENANCE_MS, self._maintain)
        for one in self.partition.with_companion:
            if one.is_online:
                if one.log.checkpoint_is_stale:
                    one.log.save_checkpoint()
                if one.log.has_unsynced_segments:
                    self._flusher.flush_soon(one)

    def compact(self, then: Callable[[int], None]) -> None:
        """Compacts the companion log; `then` gets how many records went."""
        if self._is_compacting or not self.is_online:
            return
        log, now_ms = self.companion.log, self._world.clock.now_ms()
        self._flusher.flush_soon(self.companion)
        job = compaction.plan(log, now_ms, self.companion.high_watermark, 1000, bytes(16))
        if job is None:
            return
        result = job.run()
        self._is_compacting = True

        def installed(outcome: Outcome) -> None:
            self._is_compacting = False
            then(result.records_before - result.records_after if outcome.result() else 0)

        job.install(log, result, installed)

    def trim(self, read_to: int) -> int:
        """Have retention take what it may, and consumers have seen; how many offsets."""
        if not self.is_online:
            return 0
        log = self.partition.log
        limit = min(self.partition.high_watermark, self.visibility.keep_from, read_to)
        before = log.start_offset
        if limit > before:
            log.trim(self._rng.randint(before, limit))
        return log.start_offset - before
