"""A broker of the simulated cluster: real partitions, links, controller, handlers and coordinators in a shell that is
not."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final, Protocol

from penstock.client.errors import ConnectionLost
from penstock.cluster import keys
from penstock.cluster.controller import Controller, ControllerSettings
from penstock.cluster.image import ClusterImage
from penstock.cluster.registration import (
    Identity,
    NodeIdTaken,
    is_controller,
    leave_isrs,
    plan_leave_isrs,
    plan_leaving,
    plan_register,
    plan_retire,
    plan_take_control,
)
from penstock.coordination.store import Change, Conflict, Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import CoordinatorNotAvailable, OffsetOutOfRange, PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.log.io_queue import Outcome
from penstock.log.last_run import LastRun
from penstock.log.settings import Flush, LogSettings
from penstock.replication.fetch_link import FetchLink
from penstock.replication.fetch_links import FetchLinks
from penstock.replication.flusher import Flusher
from penstock.replication.follower_fetch import serve_follower
from penstock.replication.isr_changes import IsrChange, begin, due_change, end
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import StateRuntime
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from penstock.wire.schema import message_of
from tests.simulation.clock import FakeClock
from tests.simulation.cluster_ledger import Ledger
from tests.simulation.cluster_server import SimServer, load_soon
from tests.simulation.disk import FakeDisk

STORE: Final = "store"
LAG_MS: Final = 1500
PING_MS: Final = 300
LOOK_MS: Final = 100
"""How often it is looked whether something can be asked that could not be before."""
TICK_MS: Final = 150
WAIT_MS: Final = 300
"""How long a fetch waits for records."""
CALL_MS: Final = 800
"""How long a call waits for its answer."""

REBALANCE_MS: Final = 3000
WOKEN: Final = b"woken"
WOKEN_PART: Final = 0.1
"""How often a client writes when it is woken by a commit."""
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

Reply = Callable[[Any], None]


def always() -> bool:
    """A request is wanted, however late it comes."""
    return True


class World(Protocol):
    """What a broker has around it."""

    clock: FakeClock
    numbers: "count[int]"

    def call(self, source: object, target: object, body: tuple[Any, ...], reply: Reply, timeout_ms: int) -> None:
        """Sends a request; the reply is the response, or None if none came in time."""

    def later(self, node: int, ms: int, action: Callable[[], None]) -> None: ...

    def session_of(self, node: int) -> int: ...


class SimBroker:
    """One process at a time; its disk outlives it."""

    def __init__(self, node_id: int, world: World, disk: FakeDisk, rng: Random, configs: dict[str, str]) -> None:
        self.node_id = node_id
        self.disk = disk
        self._world = world
        self._rng = rng
        self._configs = configs
        self.incarnation = 0
        self.boots = 0
        """How often its machine was without power: what a restarted log may trust depends on it."""
        self.folders = 0
        """How often it began with an empty disk."""
        self.is_doubtful = False
        """Whether it may lack what was acknowledged, because of either, and is still counted on."""
        self.is_up = False
        self.paused_until_ms = 0
        self.held: list[tuple[int, Callable[[], None]]] = []
        """What has arrived while it was paused, and in which of its incarnations."""
        self.image = ClusterImage()
        self.partitions: Partitions | None = None
        self._links: FetchLinks | None = None
        self._asking: set[int] = set()
        self.session = 0
        self.epoch = -1
        self._is_registering = False
        self._is_controlling = False
        self._controller: Controller | None = None
        self._control_epoch = -1
        self.is_leaving = False
        self.has_joined = False
        """Whether it was registered in this incarnation: before that it answers no requests."""
        self.server: SimServer | None = None
        self.ledgers: dict[TopicIdPartition, StateRuntime] = {}
        """The test-only state machines in the companion logs of what this broker leads."""

    # -- living

    def start(self) -> None:
        self.incarnation += 1
        self.is_up = True
        self.image = ClusterImage()
        boot_id = f"boot-{self.boots}"
        self._last_run = LastRun(self.disk, boot_id)
        self._has_reported_loss = False
        self.partitions = Partitions(
            node_id=self.node_id,
            disk=self.disk,
            clock=self._world.clock,
            boot_id=boot_id,
            settings_of=lambda topic: LogSettings.of({**self._configs, **topic.configs}),
            lag_max_ms=lambda: LAG_MS,
            run=self._on_thread,
            soon=lambda step: self._world.later(self.node_id, self._rng.choice((0, 1, 30)), step),
            slice_size=self._rng.choice((1, 2, 100)),
        )
        self.partitions.on_progress = self._follow
        self._flusher = Flusher()
        self.partitions.on_append = self._flusher.flush_soon
        self._links = FetchLinks(node_id=self.node_id, partitions=self.partitions, uses_sessions=False)
        self._asking = set()
        self.partitions.on_durable = lambda partition: self._fetch()
        self.session = self._world.session_of(self.node_id)
        self.epoch = -1
        self.partitions.broker_epoch = -2  # it cannot be elected without a registration
        self._is_registering = self._is_controlling = self.is_leaving = self.has_joined = False
        self._is_polling = False
        self._controller = None
        self.ledgers = {}
        self.server = SimServer(
            node_id=self.node_id,
            partitions=self.partitions,
            image=lambda: self.image,
            clock=self._world.clock,
            timer=self._timer,
            ask=self._ask_peer,
            settings=SETTINGS,
            producer_ids=self._world.numbers,
        )
        for action, ms in (
            (self._ping, PING_MS),
            (self._poll, LOOK_MS),
            (self._fetch, LOOK_MS),
            (self._tick, TICK_MS),
        ):
            self._world.later(
                self.node_id, self._rng.randint(1, ms), lambda action=action, ms=ms: self._repeat(action, ms)
            )

    def stop(self) -> None:
        self.is_up = False
        self.partitions = None
        self.server = None

    def _timer(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        is_set = True

        def fire() -> None:
            if is_set:
                action()

        def cancel() -> None:
            nonlocal is_set
            is_set = False

        self._world.later(self.node_id, round(seconds * 1000), fire)
        return cancel

    def _ask_peer(self, node: int, request: Any, answer: Callable[[Any], None]) -> None:
        is_waiting = True

        def reply(got: Any) -> None:
            nonlocal is_waiting
            is_waiting = False
            answer(got if got is not None else ConnectionLost(f"broker {node} does not answer"))

        # Before KIP-890, a marker that arrives after it was written another way is fatal: none does here.
        is_old = isinstance(request, WriteTxnMarkersRequest) and request.markers[0].transaction_version < 2
        version = message_of(type(request)).versions[-1]
        body = ("ask", request, version, (lambda: is_waiting) if is_old else always)
        self._world.call(self.node_id, node, body, reply, CALL_MS)

    def _repeat(self, action: Callable[[], None], ms: int) -> None:
        self._world.later(self.node_id, ms, lambda: self._repeat(action, ms))
        action()

    def _on_thread(self, work: Callable[[], Any], done: Callable[[Outcome], None]) -> None:
        """The threads that wait for the disk take a while, before and after."""

        def ran() -> None:
            outcome = Outcome.of(work)
            self._world.later(self.node_id, self._rng.choice((0, 1, 10)), lambda: done(outcome))

        self._world.later(self.node_id, self._rng.randint(1, 20), ran)

    # -- the store

    def _ping(self) -> None:
        self._world.call(self.node_id, STORE, ("ping", self.session), self._on_ping, CALL_MS)

    def _on_ping(self, is_alive: bool | None) -> None:
        if is_alive is False:
            self.session = self._world.session_of(self.node_id)
            self.epoch = -1

    def _poll(self) -> None:
        if not self._is_polling:
            self._is_polling = True
            self._world.call(self.node_id, STORE, ("poll", self.image.revision), self._on_change, CALL_MS)

    def _on_change(self, answer: tuple[int, Change] | None) -> None:
        self._is_polling = False
        if answer is None:
            return
        since, change = answer
        if since == self.image.revision and change.revision > self.image.revision:
            self.image = self.image.with_change(change)
            self._apply()
            if self.epoch < 0:
                self._register_when_open()
        self._poll()

    def _apply(self) -> None:
        assert self.partitions is not None
        self.partitions.apply(self.image)
        self._follow()

    def _follow(self) -> None:
        """What depends on the partitions, which have got on with the image."""
        assert self.partitions is not None
        assert self._links is not None
        self._links.apply(self.image)
        assert self.server is not None
        self.server.coordinators.apply(self.image)
        self._keep_ledgers()

    def _keep_ledgers(self) -> None:
        assert self.partitions is not None
        led = {
            partition.tp: partition.companion
            for table in self.partitions.by_id.values()
            for partition in table.values()
            if partition.companion is not None
        }
        for place, runtime in list(self.ledgers.items()):
            if led.get(place) is not runtime.partition:
                del self.ledgers[place]
                runtime.close(CoordinatorNotAvailable("it is led elsewhere now"))
        for place, companion in led.items():
            if place not in self.ledgers:
                self._count_when_woken(companion.with_companion[0])
                runtime = self.ledgers[place] = StateRuntime(
                    partition=companion,
                    machine=Ledger(),
                    clock=self._world.clock,
                    timer=self._timer,
                    threads=Executor(),
                    perform=lambda effect: None,
                )
                load_soon(runtime, self._timer)

    def _count_when_woken(self, partition: Partition) -> None:
        """As queues do: when something happens at one log, something is written to another; most of all when this
        broker has just been deposed there, and has not heard yet where else."""

        def woken() -> None:
            if not partition.is_online:
                return
            if partition.is_leader:
                partition.watch(woken)
                if self._rng.random() > WOKEN_PART:
                    return
            for place in list(self.ledgers):
                self.ledgers[place].submit(WOKEN, lambda answer, place=place: self.on_count(place, answer))

        partition.watch(woken)

    def count_in_ledger(self, place: TopicIdPartition, key: bytes, answer: Reply) -> None:
        """The new count, or an error."""
        runtime = self.ledgers.get(place)
        if runtime is None:
            answer(CoordinatorNotAvailable("it is led elsewhere"))
        else:
            runtime.submit(key, answer)

    def _transact(self, ops: Sequence[Op], reply: Callable[[int | Conflict | None], None]) -> None:
        self._world.call(self.node_id, STORE, ("transact", ops, self.session), reply, CALL_MS)

    def _register_when_open(self) -> None:
        """A registered broker may be elected, so the logs are opened first."""
        assert self.partitions is not None
        partitions = self.partitions
        partitions.when_settled(None, lambda: self._register() if self.partitions is partitions else None)

    def _register(self) -> None:
        if self._is_registering or self.epoch >= 0:
            return
        self._is_registering = True
        image, epoch = self.image, self.image.version(keys.BROKER_EPOCHS) + 1
        folder = f"{self.node_id}.{self.folders}"
        identity = Identity(node_id=self.node_id, host="h", port=self.node_id, folder=folder)
        try:
            retire = plan_retire(image, identity)
        except NodeIdTaken:  # its former process is registered until its session expires
            self._is_registering = False
            return
        if retire:  # an earlier incarnation, whose session is not over yet
            self._transact(retire, self._on_retired)
            return
        if not self._has_reported_loss and not self._report_loss(identity):
            return
        session = self.session

        def on_registered(answer: int | Conflict | None) -> None:
            self._is_registering = False
            if isinstance(answer, int) and session == self.session:
                self.epoch = epoch
                self.has_joined = True
                assert self.partitions is not None
                self.partitions.register(epoch)
                self._apply()  # as the node does: it may have been elected before it heard that it is registered

        epochs = Put(keys.BROKER_EPOCHS, keys.encode(epoch), image.version(keys.BROKER_EPOCHS))
        self._transact([epochs, *plan_register(image, identity, epoch, {})], on_registered)

    def _report_loss(self, identity: Identity) -> bool:
        """Leaves the ISRs if records may be lost with the power or the disk; returns whether it has left all."""
        may_lack = self._last_run.lost_power and LogSettings.of(self._configs).flush is Flush.OS
        leave = plan_leave_isrs(
            self.node_id, leave_isrs(self.image, identity, lambda topic, number: may_lack, begun=())
        )
        if leave:
            self._transact(leave, self._on_retired)
            return False
        self._last_run.mark_loss_reported()
        self._has_reported_loss = True
        self.is_doubtful = False
        return True

    def _on_retired(self, answer: int | Conflict | None) -> None:
        self._is_registering = False

    def leave(self) -> None:
        """Say that it is about to stop."""
        self.is_leaving = True
        self._transact(plan_leaving(self.image, self.node_id, self.epoch), lambda answer: None)

    @property
    def may_stop(self) -> bool:
        return self.image.may_stop(self.node_id)

    # -- following

    def _fetch(self) -> None:
        if self.epoch < 0:
            return
        assert self._links is not None
        for node, link in self._links.by_leader.items():
            if node in self._asking:
                continue
            request = link.request(
                broker_epoch=self.epoch, max_wait_ms=0, max_bytes=1 << 20, now_ms=self._world.clock.steady_ms()
            )
            if request is not None:
                self._asking.add(node)
                isr_decided = partial(self._fetched, node, link)
                self._world.call(self.node_id, node, ("fetch", request), isr_decided, CALL_MS)

    def _fetched(self, node: int, link: FetchLink, response: FetchResponse | None) -> None:
        self._asking.discard(node)
        if response is not None:
            taken = link.apply(response, self._world.clock.steady_ms())
            self.on_cut(taken.truncated)
            if taken != (0, 0) or not any(one.error_code for topic in response.responses for one in topic.partitions):
                self._fetch()

    def on_cut(self, count: int) -> None:
        """Replaced by the simulation, which counts the calls."""

    def on_count(self, place: TopicIdPartition, answer: int | PenstockError) -> None:
        """As `on_cut`: what a ledger has answered to one that was woken."""

    # -- leading

    def serve(self, request: FetchRequest, answer: Reply) -> None:
        """At once if there is something to say, else when there is, or after a while."""
        response = self._serve(request)
        if any(
            one.error_code or one.records or one.diverging_epoch
            for topic in response.responses
            for one in topic.partitions
        ):
            answer(response)
            return
        is_open = True

        def look() -> None:
            nonlocal is_open
            if is_open and self.partitions is not None:
                is_open = False
                answer(self._serve(request))

        assert self.partitions is not None
        for topic in request.topics:
            for wanted in topic.partitions:
                partition = self._led(topic.topic_id, wanted.partition)
                if partition is not None:
                    partition.watch_tail(lambda: self._world.later(self.node_id, 0, look))
        self._world.later(self.node_id, WAIT_MS, look)

    def _led(self, topic_id: bytes, number: int) -> Partition | None:
        assert self.partitions is not None
        table = self.partitions.by_id.get(topic_id) or self.partitions.companions.get(topic_id, {})
        return table.get(number)

    def _serve(self, request: FetchRequest) -> FetchResponse:
        assert request.replica_state is not None
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                partition = self._led(topic.topic_id, wanted.partition)
                code, start = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                if partition is not None:
                    try:
                        answers.append(
                            serve_follower(
                                partition,
                                wanted,
                                request.replica_state,
                                self._rng.choice((300, 1 << 20)),
                                self._world.clock.steady_ms(),
                                force=True,
                                blocking=True,
                            )
                        )
                        continue
                    except PenstockError as error:
                        code = error.code
                        start = partition.log.start_offset if isinstance(error, OffsetOutOfRange) else -1
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

    def _tick(self) -> None:
        if self.epoch < 0 and self.image.revision:
            self._register_when_open()
        self._propose_isr()
        self._control()
        assert self.partitions is not None
        if self.partitions.is_incomplete:
            self.partitions.retry()
        for one in self.partitions.with_companions():
            if one.is_online and one.log.has_unsynced_segments:
                self._flusher.flush_soon(one)

    def _propose_isr(self) -> None:
        """Ask for another ISR where that is due."""
        assert self.partitions is not None
        now_ms, eligible = self._world.clock.steady_ms(), self.image.eligible()
        led = [partition for table in self.partitions.by_id.values() for partition in table.values()]
        due = [change for partition in led if (change := due_change(partition, now_ms, eligible)) is not None]
        if due:
            self._ask_for(due)

    def _ask_for(self, changes: Sequence[IsrChange]) -> None:
        def isr_decided(answer: int | Conflict | None) -> None:
            conflict = answer if isinstance(answer, Conflict) else None
            end(changes, conflict)
            if conflict is not None and len(changes) > 1:
                now_ms, eligible = self._world.clock.steady_ms(), self.image.eligible()
                for change in changes:
                    again = due_change(change.partition, now_ms, eligible)
                    if again is not None:
                        self._ask_for([again])

        self._transact(begin(changes, self.image), isr_decided)

    # -- controlling

    def _control(self) -> None:
        """Be the controller if there is none, and do what it decides."""
        if self.epoch < 0 or self._is_controlling:
            return
        image = self.image
        ops: Sequence[Op]
        if not is_controller(image, self.node_id, self.epoch):
            self._controller = None
            ops = plan_take_control(image, self.node_id, self.epoch)
        else:
            assert image.controller is not None
            if self._controller is None or self._control_epoch != image.controller.epoch:
                self._control_epoch = image.controller.epoch
                self._controller = Controller(
                    epoch_version=image.versions[keys.CONTROLLER_EPOCH],
                    is_unclean=lambda topic: False,
                    settings=lambda: ControllerSettings(rebalances_after_ms=REBALANCE_MS),
                )
            ops = self._controller.decide(image, self._world.clock.steady_ms()).ops
        if ops:
            self._is_controlling = True
            self._transact(ops, self._on_controlled)

    def _on_controlled(self, answer: int | Conflict | None) -> None:
        self._is_controlling = False
