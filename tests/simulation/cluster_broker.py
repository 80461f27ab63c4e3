"""A broker of the simulated cluster: real partitions, logs, links and elections in a shell that is not."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final, Protocol

from penstock.cluster import keys
from penstock.cluster.elections import settle
from penstock.cluster.image import Broker, ClusterImage, Controller, PartitionState, Place
from penstock.coordination.store import ABSENT, Change, Check, Conflict, Delete, Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import OffsetOutOfRange, PenstockError
from penstock.log.settings import LogSettings
from penstock.records.build import Record, build_batch
from penstock.replication.leadership import IsrWish
from penstock.replication.link import Link
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.serving import serve_follower
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.simulation.clock import FakeClock
from tests.simulation.disk import FakeDisk

STORE: Final = "store"
LAG_MS: Final = 1500
PING_MS: Final = 300
LOOK_MS: Final = 100
"""How often it is looked whether something can be asked that could not be before."""
TICK_MS: Final = 150
WAIT_MS: Final = 300
"""How long who is asked for news waits for some."""
CALL_MS: Final = 800
"""How long a call waits for its answer."""

Reply = Callable[[Any], None]


class World(Protocol):
    """What a broker has around it."""

    clock: FakeClock

    def call(self, source: object, target: object, body: tuple[Any, ...], reply: Reply, timeout_ms: int) -> None:
        """Ask someone; the reply is an answer, or None if none came in time."""

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
        self.life = 0
        self.is_up = False
        self.paused_until_ms = 0
        self.image = ClusterImage()
        self.partitions: Partitions | None = None
        self.links: dict[int, Link] = {}
        self._asking: set[int] = set()
        self.session = 0
        self.epoch = -1
        self._is_registering = False
        self._is_controlling = False

    # -- living

    def start(self) -> None:
        self.life += 1
        self.is_up = True
        self.image = ClusterImage()
        self.partitions = Partitions(
            node_id=self.node_id,
            disk=self.disk,
            clock=self._world.clock,
            boot_id="boot",
            settings_of=lambda topic: LogSettings.of(self._configs),
            lag_max_ms=lambda: LAG_MS,
        )
        self.partitions.on_append = self._flush
        self.links = {}
        self._asking = set()
        self.partitions.on_kept = lambda partition: self._fetch()
        self.session = self._world.session_of(self.node_id)
        self.epoch = -1
        self.partitions.broker_epoch = -2  # nobody is elected in no registration
        self._is_registering = self._is_controlling = False
        self._is_polling = False
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

    def _repeat(self, action: Callable[[], None], ms: int) -> None:
        self._world.later(self.node_id, ms, lambda: self._repeat(action, ms))
        action()

    def _flush(self, partition: Partition) -> None:
        """The thread that syncs takes a while."""
        log = partition.log
        if log.is_syncing:
            return
        ticket = log.begin_sync()

        def done() -> None:
            if not partition.is_online:
                return
            ticket.run()
            log.end_sync(ticket)
            partition.keep(min(ticket.end_offset, log.end_offset))
            if not partition.is_kept:
                self._flush(partition)

        self._world.later(self.node_id, self._rng.randint(1, 20), done)

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
                self._register()
        self._poll()

    def _apply(self) -> None:
        assert self.partitions is not None
        self.partitions.apply(self.image)
        followed: dict[int, list[Partition]] = {}
        for partition in self.partitions:
            state = self.image.state(Place(partition.topic_id, partition.name.partition))
            if state is not None and partition.following is not None:
                followed.setdefault(state.leader, []).append(partition)
        for node in {*self.links, *followed}:
            link = self.links.setdefault(node, Link(self.node_id, uses_sessions=False))
            link.follow(followed.get(node, ()))

    def _transact(self, ops: list[Op], reply: Callable[[int | Conflict | None], None]) -> None:
        self._world.call(self.node_id, STORE, ("transact", ops, self.session), reply, CALL_MS)

    def _register(self) -> None:
        if self._is_registering:
            return
        self._is_registering = True
        epoch = self.image.version(keys.BROKER_EPOCHS) + 1
        found = self.image.brokers.get(self.node_id)
        if found is not None:
            # An earlier life, whose session is not over yet.
            version = self.image.version(keys.broker(self.node_id))
            self._transact([Delete(keys.broker(self.node_id), version)], self._on_removed)
            return
        broker = Broker(node_id=self.node_id, host="h", port=self.node_id, epoch=epoch)
        session = self.session

        def on_registered(answer: int | Conflict | None) -> None:
            self._is_registering = False
            if isinstance(answer, int) and session == self.session:
                self.epoch = epoch
                assert self.partitions is not None
                self.partitions.register(epoch)

        self._transact(
            [
                Put(keys.BROKER_EPOCHS, keys.encode(epoch), self.image.version(keys.BROKER_EPOCHS)),
                Put(keys.broker(self.node_id), broker.dump(), ABSENT, leased=True),
                Put(keys.incarnation(epoch), b"1", ABSENT, leased=True),
            ],
            on_registered,
        )

    def _on_removed(self, answer: int | Conflict | None) -> None:
        self._is_registering = False

    # -- following

    def _fetch(self) -> None:
        if self.epoch < 0:
            return
        for node, link in self.links.items():
            if node in self._asking:
                continue
            request = link.request(
                broker_epoch=self.epoch, max_wait_ms=0, max_bytes=1 << 20, now_ms=self._world.clock.steady_ms()
            )
            if request is not None:
                self._asking.add(node)
                self._world.call(
                    self.node_id, node, ("fetch", request), lambda got, node=node: self._fetched(node, got), CALL_MS
                )

    def _fetched(self, node: int, response: FetchResponse | None) -> None:
        self._asking.discard(node)
        if response is not None:
            taken = self.links[node].take(response, self._world.clock.steady_ms())
            self.on_cut(taken.cut)
            if taken != (0, 0) or not any(one.error_code for topic in response.responses for one in topic.partitions):
                self._fetch()

    def on_cut(self, count: int) -> None:
        """Replaced by whoever counts."""

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
                partition = self.partitions.by_id.get(topic.topic_id, {}).get(wanted.partition)
                if partition is not None:
                    partition.watch_tail(lambda: self._world.later(self.node_id, 0, look))
        self._world.later(self.node_id, WAIT_MS, look)

    def _serve(self, request: FetchRequest) -> FetchResponse:
        assert self.partitions is not None
        assert request.replica_state is not None
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                partition = self.partitions.by_id.get(topic.topic_id, {}).get(wanted.partition)
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

    def produce(self, topic_id: bytes, number: int, value: bytes, reply: Callable[[int | ErrorCode], None]) -> None:
        """With acks=all."""
        assert self.partitions is not None
        partition = self.partitions.by_id.get(topic_id, {}).get(number)
        if partition is None:
            reply(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        now_ms = self._world.clock.now_ms()
        try:
            partition.check_in_sync()
            appended = partition.append(build_batch([Record(key=None, value=value, timestamp_ms=now_ms)]), now_ms)
        except PenstockError as error:
            reply(error.code)
            return

        def committed() -> None:
            if not partition.is_leader or partition.high_watermark <= appended.last_offset:
                reply(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif partition.in_sync < partition.log.settings.min_insync_replicas:
                reply(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            else:
                reply(appended.base_offset)

        partition.when_committed(appended.last_offset + 1, committed)

    def _tick(self) -> None:
        if self.epoch < 0 and self.image.revision:
            self._register()
        self._wish()
        self._control()

    def _wish(self) -> None:
        """Ask for another ISR where that is due."""
        assert self.partitions is not None
        now_ms = self._world.clock.steady_ms()
        for table in self.partitions.by_id.values():
            for partition in table.values():
                lead = partition.leadership
                wish = lead.wish(now_ms, self.image.eligible()) if lead is not None else None
                if wish is not None:
                    self._ask_for(partition, wish)

    def _ask_for(self, partition: Partition, wish: IsrWish) -> None:
        lead = partition.leadership
        assert lead is not None
        lead.asks(wish)
        state = replace(lead.state, isr=wish.isr)
        key = keys.partition(partition.topic_id, partition.name.partition)
        ops: list[Op] = [
            Put(key, state.dump(), wish.version),
            *(Check(keys.incarnation(epoch), self._incarnation(epoch)) for epoch in wish.joining.values()),
        ]

        def answered(answer: int | Conflict | None) -> None:
            lead.answered(wish, is_outdated=isinstance(answer, Conflict) and answer.key == key)

        self._transact(ops, answered)

    def _incarnation(self, epoch: int) -> int:
        return self.image.version(keys.incarnation(epoch))

    # -- controlling

    def _control(self) -> None:
        """Be the controller if there is none, and do what it does: settle what is not settled."""
        if self.epoch < 0 or self._is_controlling:
            return
        image = self.image
        mine = image.controller is not None and (image.controller.node_id, image.controller.broker_epoch) == (
            self.node_id,
            self.epoch,
        )
        ops: list[Op] = []
        if image.controller is None:
            made = Controller(node_id=self.node_id, broker_epoch=self.epoch, epoch=image.controller_epoch + 1)
            value = {"node_id": made.node_id, "broker_epoch": made.broker_epoch, "epoch": made.epoch}
            ops = [
                Put(keys.CONTROLLER, keys.encode(value), ABSENT, leased=True),
                Put(keys.CONTROLLER_EPOCH, keys.encode(made.epoch), image.version(keys.CONTROLLER_EPOCH)),
            ]
        elif mine:
            found = [(place, state, self._settled(place, state)) for place, state in image.placed()]
            changes = [(place, after) for place, state, after in found if after is not state]
            if changes:
                ops = [Check(keys.CONTROLLER_EPOCH, image.version(keys.CONTROLLER_EPOCH))]
                ops += [Put(keys.partition(*place), after.dump(), after.version) for place, after in changes[:20]]
        if ops:
            self._is_controlling = True
            self._transact(ops, self._on_controlled)

    def _settled(self, place: Place, state: PartitionState) -> PartitionState:
        return settle(place, state, self.image.brokers, unclean=False)

    def _on_controlled(self, answer: int | Conflict | None) -> None:
        self._is_controlling = False
