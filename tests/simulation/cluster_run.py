"""One seeded run of a cluster: brokers that replicate, elect and are elected, on bad disks and a bad network, and
coordinate a group and transactions meanwhile.

Brokers are killed, in the middle of a write too, lose power or their disk, are paused, stopped properly and cut
off from each other and from the store; the store goes away; replicas are moved. The invariants of cluster_checks.py
hold after every step, and once nothing goes wrong any more everything that was acknowledged is on every replica, all
of them are in sync, every transaction ends and the group is of one mind.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

from penstock.cluster import keys
from penstock.cluster.image import NO_EPOCH, NO_LEADER, PartitionState, Topic
from penstock.cluster.reassignment import plan_cancel, plan_reassign
from penstock.coordination.store import ABSENT, Conflict, Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.records.build import Record, build_batch
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.clock import FakeClock
from tests.simulation.cluster_broker import CALL_MS, STORE, WAIT_MS, WOKEN, Reply, SimBroker, always
from tests.simulation.cluster_checks import Checks, Violation, entries_of
from tests.simulation.cluster_clients import TOPIC, ClusterMember, TransactionClient, code_of
from tests.simulation.cluster_store import SimStore
from tests.simulation.cluster_writer import Channel, IdempotentClient
from tests.simulation.disk import FakeDisk, Killed
from tests.simulation.group_machines import GROUP
from tests.simulation.transaction_model import Txn

TOPIC_ID = b"\x07" * 16
COMPANION_ID = b"\x70" * 16
INTERNAL = {"__consumer_offsets": b"\x08" * 16, "__transaction_state": b"\x09" * 16}
QUIET_MS = 60_000
"""How long it may take without new faults until a broker has made progress."""
REST_MS = 300_000
"""And until all is at rest."""
TICK_MS = 50
"""How often members look what there is to do."""
COMPACT = {"cleanup.policy": "compact"}


class ClusterRun:
    def __init__(self, seed: int, steps: int, faults: int) -> None:
        self.rng = Random(seed)
        self.steps = steps
        self.faults_min = faults
        self.clock = FakeClock()
        self.counts: Counter[str] = Counter()
        self.txns: dict[str, Txn] = {}
        self.numbers = count(1000)
        self.checks = Checks(self.txns)
        self.store = SimStore()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._cut: set[tuple[object, object]] = set()
        self._taken: dict[FakeDisk, int] = {}
        """The bytes that disks have too few of for a while. A broker gets them back before it opens its logs: a log
        that it cannot open for lack of space stays offline until the next start."""
        self._store_down_until_ms = 0
        self._polls: list[tuple[int, int, Reply]] = []
        self.pace_ms = self.rng.choice((300, 900, 2000))
        """How often something goes wrong."""
        self._weights = self.rng.choices((1, 5), k=len(self._kinds))
        """Each run has its own weights: some faults coincide only where they are frequent."""
        self.delay_ms = self.rng.choice((2, 20, 120))
        self.loss = self.rng.choice((0.0, 0.01, 0.05))
        self.repeat = self.rng.choice((0.0, 0.02))
        size = self.rng.choice((3, 3, 3, 4, 5))
        self.is_durable = self.rng.random() < 0.3
        """Whether everything is synced before it is acknowledged: then all may lose power, else not all at once."""
        configs = {
            "min.insync.replicas": self.rng.choice(("1", "2")),
            "flush": "group" if self.is_durable else "os",
            "segment.bytes": self.rng.choice(("1024", "1048576")),
        }
        self.brokers = {
            node: SimBroker(node, self, FakeDisk(Random(self.rng.random())), Random(self.rng.random()), configs)
            for node in range(1, size + 1)
        }
        for broker in self.brokers.values():
            broker.on_cut = self._on_cut  # type: ignore[method-assign]
            broker.on_count = self._on_woken  # type: ignore[method-assign]
        self.partitions = self.rng.randint(1, 2)
        self.factor = self.rng.choice((2, 3, 3))
        self.has_companions = self.rng.random() < 0.7
        companion = COMPANION_ID if self.has_companions else b""
        self._make_topic(Topic(topic_id=TOPIC_ID, name=TOPIC, count=self.partitions, companion=companion))
        for name, topic_id in INTERNAL.items():
            self._make_topic(Topic(topic_id=topic_id, name=name, count=1, configs=COMPACT))
        self.orders = [TopicIdPartition(TOPIC_ID, number) for number in range(self.partitions)]
        self.places = [*self.orders, *(TopicIdPartition(topic_id, 0) for topic_id in INTERNAL.values())]
        self._place_keys = {keys.partition(*place) for place in self.places}
        self._values = count()
        self.members = [
            ClusterMember(number, Random(self.rng.random()), self, self.partitions)
            for number in range(self.rng.randint(1, 3))
        ]
        self.writers = [
            IdempotentClient(number, Random(self.rng.random()), self, self.rng.choice(self.orders))
            for number in range(self.rng.randint(1, 2))
        ]
        self.producers = [
            TransactionClient(number, Random(self.rng.random()), self, self.partitions)
            for number in range(self.rng.randint(1, 2))
        ]

    def _make_topic(self, topic: Topic) -> None:
        ops = [
            Put(keys.topic(topic.topic_id), topic.dump(), ABSENT),
            Put(keys.topic_name(topic.name), keys.encode(keys.topic(topic.topic_id)), ABSENT),
        ]
        for number in range(topic.count):
            replicas = tuple(self.rng.sample(sorted(self.brokers), self.factor))
            state = PartitionState(
                replicas=replicas, leader=NO_LEADER, leader_epoch=0, isr=replicas, leader_broker_epoch=NO_EPOCH
            )
            ops.append(Put(keys.partition(topic.topic_id, number), state.dump(), ABSENT))
        self.store.transact(ops, 0)

    # -- the world that brokers see

    def session_of(self, node: int) -> int:
        return self.store.open_session(self.clock.now_ms())

    def later(self, node: int, ms: int, action: Callable[[], None]) -> None:
        """Do something on a broker after a while, unless it has died by then."""
        broker = self.brokers[node]
        incarnation = broker.incarnation
        self._at(self.clock.now_ms() + ms, lambda: self._on_broker(broker, incarnation, action))

    def _at(self, at_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._numbers), action))

    def _on_broker(self, broker: SimBroker, incarnation: int, action: Callable[[], None]) -> None:
        if not broker.is_up or broker.incarnation != incarnation:
            return
        if broker.paused_until_ms > self.clock.now_ms() or broker.held:
            broker.held.append((incarnation, action))
            if len(broker.held) == 1:
                self._at(broker.paused_until_ms, lambda: self._go_on_after_pause(broker))
            return
        try:
            action()
            self._look(broker)
        except Killed:
            self.counts["torn"] += 1
            self._look(broker)  # what it had answered before that was right
            self._die(broker)

    def _go_on_after_pause(self, broker: SimBroker) -> None:
        """What came meanwhile is done in the order in which it came."""
        if broker.held and broker.paused_until_ms > self.clock.now_ms():
            self._at(broker.paused_until_ms, lambda: self._go_on_after_pause(broker))
            return
        held, broker.held = broker.held, []
        for incarnation, action in held:
            self._on_broker(broker, incarnation, action)

    def call(self, source: object, target: object, body: tuple[Any, ...], reply: Reply, timeout_ms: int) -> None:
        asker = self.brokers[source] if isinstance(source, int) else None
        incarnation = asker.incarnation if asker else 0
        is_open = True

        def answer(value: Any) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                if asker is None:
                    reply(value)
                else:
                    self._on_broker(asker, incarnation, lambda: reply(value))

        self._send(
            source,
            target,
            lambda: self._handle(target, body, lambda value: self._send(target, source, lambda: answer(value))),
        )
        self._at(self.clock.now_ms() + timeout_ms, lambda: answer(None))

    def post(self, channel: Channel, target: int, body: tuple[Any, ...], reply: Reply, timeout_ms: int) -> None:
        """As `call`, over a connection: what was sent first arrives first, after one that is lost nothing."""
        broker, is_open = self.brokers[target], True

        def answer(value: Any) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                reply(value)

        def deliver() -> None:
            if channel.incarnation is None:
                channel.incarnation = broker.incarnation
            if channel.is_broken or channel.incarnation != broker.incarnation or not broker.is_up:
                channel.is_broken = True
            else:
                self._handle(target, body, lambda value: self.after(self.rng.randint(0, 5), lambda: answer(value)))

        channel.is_broken = channel.is_broken or self.rng.random() < self.loss
        channel.last_ms = max(channel.last_ms, self.clock.now_ms() + self.rng.randint(0, self.delay_ms))
        self._at(channel.last_ms, deliver)
        self.after(timeout_ms, lambda: answer(None))

    def _send(self, source: object, target: object, deliver: Callable[[], None]) -> None:
        for _ in range(2 if self.rng.random() < self.repeat else 1):
            if self.rng.random() < self.loss:
                continue
            at_ms = self.clock.now_ms() + self.rng.randint(0, self.delay_ms)
            self._at(at_ms, lambda: deliver() if (source, target) not in self._cut else None)

    def _handle(self, target: object, body: tuple[Any, ...], answer: Reply) -> None:
        if target == STORE:
            self._handle_store(body, answer)
            return
        assert isinstance(target, int)
        broker = self.brokers[target]
        match body:
            case ("fetch", request):
                self._on_broker(broker, broker.incarnation, lambda: broker.serve(request, answer))
            case ("ask", request, version, is_wanted):
                if is_wanted():
                    self._on_broker(
                        broker,
                        broker.incarnation,
                        lambda: self._ask_broker(broker, request, version, answer) if is_wanted() else None,
                    )
            case ("count", place, key):
                self._on_broker(broker, broker.incarnation, lambda: broker.count_in_ledger(place, key, answer))

    @staticmethod
    def _ask_broker(broker: SimBroker, request: Any, version: int, answer: Reply) -> None:
        if broker.server is not None and broker.has_joined:
            broker.server.handle(request, version, answer)

    def _handle_store(self, body: tuple[Any, ...], answer: Reply) -> None:
        now_ms = self.clock.now_ms()
        if now_ms < self._store_down_until_ms:
            return
        revision = self.store.revision
        self._answer_store(body, answer, now_ms)
        if self.store.revision > revision:
            self._answer_polls()

    def _answer_store(self, body: tuple[Any, ...], answer: Reply, now_ms: int) -> None:
        self.counts["expired"] += self.store.expire(now_ms)
        match body:
            case ("ping", session):
                answer(self.store.hear(session, now_ms))
            case ("poll", revision):
                if self.store.revision > revision:
                    answer((revision, self.store.changes_since(revision)))
                else:
                    self._polls.append((now_ms + WAIT_MS, revision, answer))
                    self._at(now_ms + WAIT_MS, self._answer_polls)
            case ("transact", ops, session):
                if any(isinstance(op, Put) and op.leased for op in ops) and not self.store.hear(session, now_ms):
                    return
                if self._would_lose(ops):
                    return  # it did not arrive
                before = [self._state(place) for place in self.places]
                try:
                    answer(self.store.transact(ops, session))
                    self._count(before)
                except Conflict as conflict:
                    self.counts["conflicts"] += 1
                    answer(conflict)

    def _would_lose(self, ops: Sequence[Op]) -> bool:
        """Whether only brokers that may lack something would be left in sync: that is more than anything survives."""
        doubtful = self._doubtful()
        written = [op for op in ops if isinstance(op, Put) and op.key in self._place_keys] if doubtful else []
        return any(doubtful.issuperset(PartitionState.read(keys.decode(op.value), 0).isr) for op in written)

    def _doubtful(self) -> set[int]:
        return {node for node, broker in self.brokers.items() if broker.is_doubtful}

    def _answer_polls(self) -> None:
        """Answers waiting polls if there is something new, or their time is up."""
        polls, self._polls = self._polls, []
        for until_ms, revision, answer in polls:
            if self.store.revision > revision or self.clock.now_ms() >= until_ms:
                answer((revision, self.store.changes_since(revision)))
            else:
                self._polls.append((until_ms, revision, answer))

    def _state(self, place: TopicIdPartition) -> PartitionState:
        found = self.store.get(keys.partition(*place))
        assert found is not None
        return PartitionState.read(keys.decode(found.value), found.version)

    def _count(self, before: list[PartitionState]) -> None:
        for place, old in zip(self.places, before, strict=True):
            new = self._state(place)
            if new.version != old.version:
                self.counts["elections"] += new.leader_epoch > old.leader_epoch
                self.counts["shrinks"] += len(new.isr) < len(old.isr)
                self.counts["grows"] += len(new.isr) > len(old.isr)

    # -- the run

    @property
    def faults(self) -> int:
        kinds = ("kills", "torn", "pauses", "cuts", "store_away", "power", "disks", "moves", "stops")
        return sum(self.counts[name] for name in kinds)

    def run(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        self._schedule_clients()
        self._schedule_faults()
        while self.counts["steps"] < self.steps or self.faults < self.faults_min:
            self._step()
        self._calm()

    def _step(self) -> None:
        at_ms, _, action = heapq.heappop(self._events)
        if at_ms > self.clock.now_ms():
            self.clock.advance(at_ms - self.clock.now_ms())
        self.counts["steps"] += 1
        action()

    def _look(self, broker: SimBroker) -> None:
        if broker.partitions is not None:
            with broker.disk.looked_at():
                for table in broker.partitions.replicas.values():
                    for partition in table.values():
                        for one in partition.with_companion:
                            if one.is_online and one.leader_epoch >= 0:
                                self.checks.look(broker.node_id, broker.incarnation, one)

    def _on_cut(self, offsets: int) -> None:
        self.counts["truncations"] += offsets > 0

    def _on_woken(self, place: TopicIdPartition, answer: int | PenstockError) -> None:
        if isinstance(answer, int):
            self.counts["woken"] += 1
            self.checks.counted_in_ledger(place, WOKEN, answer)

    # -- clients

    def after(self, ms: int, action: Callable[[], None]) -> None:
        self._at(self.clock.now_ms() + ms, action)

    def leader_of(self, topic: str, number: int) -> int:
        """The leader as some broker knows it, which may be outdated."""
        return self.leader_since(topic, number, NO_EPOCH)[0]

    def leader_since(self, topic: str, number: int, epoch: int) -> tuple[int, int]:
        """The leader and its epoch as some broker knows them; one before `epoch` does not count."""
        place = TopicIdPartition(TOPIC_ID if topic == TOPIC else INTERNAL[topic], number)
        views = [broker.image.state(place) for broker in self.brokers.values()]
        leaders = [
            (view.leader, view.leader_epoch)
            for view in views
            if view is not None and view.leader in self.brokers and view.leader_epoch >= epoch
        ]
        return self.rng.choice(leaders) if leaders else (NO_LEADER, epoch)

    def _schedule_clients(self) -> None:
        for member in self.members:
            member.start(self.clock.now_ms())
        for producer in self.producers:
            producer.start()
        for writer in self.writers:
            writer.start()
        self.after(TICK_MS, self._tick_members)
        self.after(1, self._produce)

    def _produce(self) -> None:
        self.after(self.rng.randint(1, 40), self._produce)
        place = self.rng.choice(self.orders)
        luck = self.rng.random()
        if luck < 0.6:
            self.send(place)
        elif luck < 0.9 and self.has_companions:
            self.count(place)
        else:
            self.fetch_offsets()

    def send(self, place: TopicIdPartition) -> None:
        """With acks=all, without a sequence, and once."""
        value = b"%d" % next(self._values)
        batch = bytes(build_batch([Record(key=None, value=value, timestamp_ms=self.clock.now_ms())]))
        entry = PartitionProduceData(index=place.partition, records=batch)
        data = TopicProduceData(name=TOPIC, partition_data=[entry])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=CALL_MS, topic_data=[data])

        def reply(response: Any) -> None:
            if response is not None and code_of(response) is ErrorCode.NONE:
                self.counts["acked"] += 1
                ((answer,),) = (topic.partition_responses for topic in response.responses)
                self.checks.acknowledged(place, answer.base_offset, value)
            elif response is not None:
                self.counts["refused"] += 1

        node = self.leader_of(TOPIC, place.partition)
        if node != NO_LEADER:
            self.call("client", node, ("ask", request, 9, always), reply, CALL_MS)

    def count(self, place: TopicIdPartition) -> None:
        """Have something counted in a companion log."""
        key = self.rng.choice((b"red", b"green"))

        def reply(answer: int | PenstockError | None) -> None:
            if isinstance(answer, int):
                self.counts["counted"] += 1
                self.checks.counted_in_ledger(place, key, answer)

        node = self.leader_of(TOPIC, place.partition)
        if node != NO_LEADER:
            self.call("client", node, ("count", place, key), reply, CALL_MS)

    def fetch_offsets(self) -> None:
        """OffsetsNeverRetreat: what the group has committed by now is what is found, or something newer."""
        known = dict(self.checks.commits)
        topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(self.partitions)))
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])

        def reply(response: OffsetFetchResponse | None) -> None:
            if response is None or response.groups[0].error_code:
                return
            self.counts["offsets_fetched"] += 1
            for one in response.groups[0].topics[0].partitions:
                generation = int(one.metadata) if one.metadata else -1
                if generation < known.get(one.partition_index, -1):
                    raise Violation(
                        f"OffsetsNeverRetreat: partition {one.partition_index} was committed in generation "
                        f"{known[one.partition_index]}, and is in {generation}"
                    )

        node = self.leader_of("__consumer_offsets", 0)
        if node != NO_LEADER:
            self.call("client", node, ("ask", request, 8, always), reply, CALL_MS)

    def _tick_members(self) -> None:
        self.after(TICK_MS, self._tick_members)
        for member in self.members:
            member.tick(self.clock.now_ms())
        self._check_owners()

    def _check_owners(self) -> None:
        """OneOwnerPerPartition, of those that believe in the newest generation."""
        believers = [member for member in self.members if member.believes]
        newest = max((member.generation for member in believers), default=-1)
        owners: dict[int, int] = {}
        for member in believers:
            for number in member.owned if member.generation == newest else ():
                if number in owners:
                    raise Violation(f"OneOwnerPerPartition: {number} has two in generation {newest}")
                owners[number] = member.number

    def committed(self, numbers: list[int], generation: int) -> None:
        """A member got the acknowledgement of its commit."""
        self.counts["offsets_committed"] += 1
        for number in numbers:
            self.checks.commits[number] = max(generation, self.checks.commits.get(number, -1))

    # -- faults

    def _schedule_faults(self) -> None:
        self._at(self.clock.now_ms() + self.rng.randint(20, self.pace_ms), self._fault)

    def _fault(self) -> None:
        self._schedule_faults()
        (kind,) = self.rng.choices(self._kinds, self._weights)
        kind()

    @property
    def _kinds(self) -> list[Callable[[], None]]:
        return [
            self._kill,
            self._tear,
            self._pause,
            self._cut_link,
            self._cut_store,
            self._heal,
            self._store_away,
            self._move,
            self._stop,
            self._disturb_member,
            self._fill_disk,
        ]

    def _up(self) -> list[SimBroker]:
        return [broker for broker in self.brokers.values() if broker.is_up]

    def _kill(self) -> None:
        up = self._up()
        if up:
            broker = self.rng.choice(up)
            self.counts["kills"] += 1
            self._die(broker)

    def _die(self, broker: SimBroker) -> None:
        broker.stop()
        luck = self.rng.random()
        if luck < 0.1 and self._is_needless(broker):
            self.counts["disks"] += 1
            broker.disk = FakeDisk(Random(self.rng.random()))
            broker.folders += 1
            broker.is_doubtful = True
        elif luck < 0.5 and (self.is_durable or self._is_needless(broker)):
            self.counts["power"] += 1
            broker.disk.lose_power()
            broker.boots += 1
            broker.is_doubtful |= not self.is_durable
        else:
            broker.disk.restart()
        self._at(self.clock.now_ms() + self.rng.choice((20, 500, 3000, 6000)), lambda: self._revive(broker))

    def _is_needless(self, broker: SimBroker) -> bool:
        """Whether others have everything that was acknowledged."""
        doubtful = self._doubtful() | {broker.node_id}
        return not any(doubtful.issuperset(self._state(place).isr) for place in self.places)

    def _revive(self, broker: SimBroker) -> None:
        if not broker.is_up:
            self._free_disk(broker.disk)
            try:
                broker.start()
            except Killed:
                self._die(broker)

    def _tear(self) -> None:
        up = self._up()
        if up:
            self.rng.choice(up).disk.die_after(self.rng.randint(1, 12))

    def _fill_disk(self) -> None:
        """A broker has only a few free bytes for a while, maybe room for the first of several batches."""
        registered = [broker for broker in self._up() if broker.epoch >= 0]
        if registered:
            disk = self.rng.choice(registered).disk
            self.counts["full_disks"] += 1
            taken = max(0, disk.free_bytes - self.rng.randint(0, 1500))
            disk.free_bytes -= taken
            self._taken[disk] = self._taken.get(disk, 0) + taken
            self._at(self.clock.now_ms() + self.rng.choice((500, 3000, 8000)), lambda: self._free_disk(disk))

    def _free_disk(self, disk: FakeDisk) -> None:
        disk.free_bytes += self._taken.pop(disk, 0)

    def _pause(self) -> None:
        up = self._up()
        if up:
            self.counts["pauses"] += 1
            self.rng.choice(up).paused_until_ms = self.clock.now_ms() + self.rng.choice((300, 2500, 8000))

    def _cut_link(self) -> None:
        self.counts["cuts"] += 1
        one, other = self.rng.sample(sorted(self.brokers), 2)
        self._cut.add((one, other))
        if self.rng.random() < 0.5:
            self._cut.add((other, one))

    def _cut_store(self) -> None:
        self.counts["cuts"] += 1
        node = self.rng.choice(sorted(self.brokers))
        self._cut.add((node, STORE))
        if self.rng.random() < 0.5:
            self._cut.add((STORE, node))

    def _heal(self) -> None:
        self._cut.clear()

    def _store_away(self) -> None:
        if self.rng.random() < 0.4:
            self.counts["store_away"] += 1
            self._store_down_until_ms = self.clock.now_ms() + self.rng.choice((200, 2000, 5000))

    def _move(self) -> None:
        """Replicas go elsewhere, or are called back."""
        up = [broker for broker in self._up() if broker.epoch >= 0]
        if not up:
            return
        image, place = self.rng.choice(up).image, self.rng.choice(self.places)
        try:
            if self.rng.random() < 0.2:
                ops = plan_cancel(image, place)
            else:
                ops = plan_reassign(image, place, self.rng.sample(sorted(self.brokers), self.factor))
        except PenstockError:
            return
        self.counts["moves"] += bool(ops)
        self.call("client", STORE, ("transact", ops, 0), lambda answer: None, CALL_MS)

    def _stop(self) -> None:
        """A controlled shutdown: others lead first."""
        up = [broker for broker in self._up() if broker.epoch >= 0 and not broker.is_leaving]
        if up:
            broker = self.rng.choice(up)
            self.counts["stops"] += 1
            broker.leave()
            self._at(self.clock.now_ms() + 300, lambda: self._stop_if_may(broker, broker.incarnation, 10))

    def _stop_if_may(self, broker: SimBroker, incarnation: int, tries: int) -> None:
        if not broker.is_up or broker.incarnation != incarnation:
            return
        if not broker.may_stop and tries:
            self._at(self.clock.now_ms() + 200, lambda: self._stop_if_may(broker, incarnation, tries - 1))
            return
        self._die(broker)

    def _disturb_member(self) -> None:
        member = self.rng.choice(self.members)
        if not member.is_running:
            member.start(self.clock.now_ms())
        elif self.rng.random() < 0.5:
            member.stop()
        else:
            member.leave(self.clock.now_ms())

    # -- the end

    def _calm(self) -> None:
        """Nothing goes wrong any more: all that was acknowledged is everywhere, and all are in sync."""
        self._events = [event for event in self._events if not self._is_trouble(event[2])]
        heapq.heapify(self._events)
        self._heal()
        self._store_down_until_ms = 0
        for disk in list(self._taken):
            self._free_disk(disk)
        self.loss = self.repeat = 0.0
        for broker in self.brokers.values():
            broker.paused_until_ms = 0
            self._go_on_after_pause(broker)
            broker.disk.disarm()
            if not broker.is_up:
                broker.start()
        for producer in self.producers[1:]:
            producer.is_over = True  # what it has begun ends by itself, in time
        self._go_on_calmly()
        for producer in self.producers:
            producer.is_over = True
        for writer in self.writers:
            writer.is_over = True
        for member in self.members:
            member.commit_rate = 0.0
        begun_ms = quiet_ms = self.clock.now_ms()
        ends = self._ends()
        while self.clock.now_ms() < min(quiet_ms + QUIET_MS, begun_ms + REST_MS) and not self._is_calm():
            for _ in range(200):
                self._step()
            before, ends = ends, self._ends()
            if ends != before:  # a replica that is far behind may take long, as long as it makes progress
                quiet_ms = self.clock.now_ms()
        if not self._is_calm():
            raise Violation(f"it does not come to rest: {self._where()}")
        self._check_all()
        self._check_transactions()

    def _ends(self) -> list[int]:
        """How far every replica has come."""
        found = []
        for place in self.places:
            for broker in self.brokers.values():
                numbers = broker.partitions.replicas.get(place.topic_id, {}) if broker.partitions else {}
                partition = numbers.get(place.partition)
                if partition is not None:
                    found.extend(one.log.end_offset for one in partition.with_companion if one.is_online)
        return found

    def _go_on_calmly(self) -> None:
        """Producers and members are left alone for a while."""
        until_ms = self.clock.now_ms() + 3_000
        while self.clock.now_ms() < until_ms:
            self._step()

    def _is_trouble(self, action: Callable[[], None]) -> bool:
        return action in (self._fault, self._produce)

    def _states(self) -> list[PartitionState]:
        image = next(iter(self.brokers.values())).image
        return [state for place in self.places if (state := image.state(place)) is not None]

    def _is_calm(self) -> bool:
        for place in self.places:
            state = self._state(place)
            if set(state.isr) != set(state.replicas) or state.leader == NO_LEADER or state.is_reassigned:
                return False
            if any(broker.image.state(place) != state for broker in self.brokers.values()):
                return False  # one that has just lost its replica does not know that yet
            ends = set()
            for node in state.replicas:
                partitions = self.brokers[node].partitions
                partition = partitions.replicas.get(place.topic_id, {}).get(place.partition) if partitions else None
                if partition is None or not all(one.is_online for one in partition.with_companion):
                    return False
                if node != state.leader and partition.following is None:
                    return False
                for one in partition.with_companion:
                    ends.add((one.topic_id, one.log.end_offset))
                    ends.add((one.topic_id, one.high_watermark))
                if partition.last_stable_offset < partition.high_watermark:
                    return False
            if len(ends) != len(partition.with_companion):
                return False
        return True

    def _where(self) -> str:
        lines = []
        for place in self.places:
            found = self.store.get(keys.partition(*place))
            lines.append(f"{place.partition}: {found.value.decode() if found else None}")
            for node, broker in self.brokers.items():
                partition = (
                    broker.partitions.replicas.get(place.topic_id, {}).get(place.partition)
                    if broker.partitions
                    else None
                )
                if partition is not None:
                    lines.append(
                        f"  {node} epoch {broker.epoch}: leads {partition.is_leader} in {partition.leader_epoch}, "
                        f"online {partition.is_online} {partition.offline_reason}, "
                        f"mark {partition.high_watermark}, end {partition.is_online and partition.log.end_offset}"
                    )
        return "\n".join(lines)

    def _check_all(self) -> None:
        for place in self.places:
            acked = self.checks.acked.get(place, {})
            for broker in self.brokers.values():
                assert broker.partitions is not None
                partition = broker.partitions.replicas.get(place.topic_id, {}).get(place.partition)
                if partition is None:
                    continue
                held = dict(entries_of(partition, 0, partition.log.end_offset))
                for offset, value in acked.items():
                    if offset not in held or held[offset].value != value:
                        raise Violation(f"lost: {value!r} was acknowledged at {offset}, {broker.node_id} lacks it")

    def _check_transactions(self) -> None:
        """Checks that all records of acknowledged commits can be read."""
        values = {entry.value for place in self.orders for entry in self.checks.committed.get(place, ())}
        for txn in self.txns.values():
            txn.check()
            if txn.outcome:
                for number, _, _, sequence in txn.acked:
                    if f"{txn.name}#{number}.{sequence}".encode() not in values:
                        raise Violation(f"CommitNeverUndone: {txn.name} was committed, {number}.{sequence} is gone")
                if txn.acked and not txn.seen_in:
                    raise Violation(f"CommitNeverUndone: {txn.name} was committed, and is not to be seen")
