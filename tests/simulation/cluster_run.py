"""One seeded life of a cluster: brokers that replicate, elect and are elected, on bad disks and a bad network.

Brokers are killed, in the middle of a write too, paused and cut off from each other and from the store; the store
goes away. The invariants of cluster_checks.py hold after every step, and once nothing goes wrong any more everything
that was acknowledged is on every replica, and all of them are in sync.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from penstock.cluster import keys
from penstock.cluster.image import NO_EPOCH, NO_LEADER, PartitionState, Place, Topic
from penstock.coordination.store import ABSENT, Conflict, Put
from penstock.foundation.codes import ErrorCode
from tests.simulation.clock import FakeClock
from tests.simulation.cluster_broker import CALL_MS, STORE, WAIT_MS, Reply, SimBroker
from tests.simulation.cluster_checks import Checks, Violation, entries_of
from tests.simulation.cluster_store import SimStore
from tests.simulation.disk import FakeDisk, Killed

TOPIC_ID = b"\x07" * 16
QUIET_MS = 60_000


class ClusterRun:
    def __init__(self, seed: int, steps: int) -> None:
        self.rng = Random(seed)
        self.steps = steps
        self.clock = FakeClock()
        self.counts: Counter[str] = Counter()
        self.checks = Checks()
        self.store = SimStore()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._cut: set[tuple[object, object]] = set()
        self._store_down_until_ms = 0
        self._polls: list[tuple[int, int, Reply]] = []
        self.pace_ms = self.rng.choice((400, 1500, 3000))
        """How often something goes wrong."""
        self.delay_ms = self.rng.choice((2, 20, 120))
        self.loss = self.rng.choice((0.0, 0.01, 0.05))
        self.repeat = self.rng.choice((0.0, 0.02))
        size = self.rng.choice((3, 3, 3, 4, 5))
        self.is_durable = self.rng.random() < 0.3
        """Whether the topic is synced before it is acknowledged: then brokers lose power too."""
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
        self.places = self._make_topic()
        self._values = count()

    def _make_topic(self) -> list[Place]:
        partitions = self.rng.randint(1, 2)
        factor = self.rng.choice((2, 3, 3))
        nodes = sorted(self.brokers)
        topic = Topic(topic_id=TOPIC_ID, name="orders", count=partitions)
        self.store.transact([Put(keys.topic(TOPIC_ID), topic.dump(), ABSENT)], 0)
        for number in range(partitions):
            replicas = tuple(self.rng.sample(nodes, factor))
            state = PartitionState(
                replicas=replicas, leader=NO_LEADER, leader_epoch=0, isr=replicas, leader_broker_epoch=NO_EPOCH
            )
            self.store.transact([Put(keys.partition(TOPIC_ID, number), state.dump(), ABSENT)], 0)
        return [Place(TOPIC_ID, number) for number in range(partitions)]

    # -- the world that brokers see

    def session_of(self, node: int) -> int:
        return self.store.open_session(self.clock.now_ms())

    def later(self, node: int, ms: int, action: Callable[[], None]) -> None:
        """Do something on a broker after a while, unless it has died by then."""
        broker = self.brokers[node]
        life = broker.life
        self._at(self.clock.now_ms() + ms, lambda: self._on_broker(broker, life, action))

    def _at(self, at_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._numbers), action))

    def _on_broker(self, broker: SimBroker, life: int, action: Callable[[], None]) -> None:
        if not broker.is_up or broker.life != life:
            return
        if broker.paused_until_ms > self.clock.now_ms():
            self._at(broker.paused_until_ms, lambda: self._on_broker(broker, life, action))
            return
        try:
            action()
            self._look(broker)
        except Killed:
            self.counts["torn"] += 1
            self._die(broker)

    def call(self, source: object, target: object, body: tuple[Any, ...], reply: Reply, timeout_ms: int) -> None:
        asker = self.brokers[source] if isinstance(source, int) else None
        life = asker.life if asker else 0
        is_open = True

        def answer(value: Any) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                if asker is None:
                    reply(value)
                else:
                    self._on_broker(asker, life, lambda: reply(value))

        self._send(
            source,
            target,
            lambda: self._handle(target, body, lambda value: self._send(target, source, lambda: answer(value))),
        )
        self._at(self.clock.now_ms() + timeout_ms, lambda: answer(None))

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
                self._on_broker(broker, broker.life, lambda: broker.serve(request, answer))
            case ("produce", place, value):
                self._on_broker(broker, broker.life, lambda: broker.produce(*place, value, answer))

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
                before = [self._state(place) for place in self.places]
                try:
                    answer(self.store.transact(ops, session))
                    self._count(before)
                except Conflict as conflict:
                    self.counts["conflicts"] += 1
                    answer(conflict)

    def _answer_polls(self) -> None:
        """Those who wait for news, if there are some, or their time is up."""
        polls, self._polls = self._polls, []
        for until_ms, revision, answer in polls:
            if self.store.revision > revision or self.clock.now_ms() >= until_ms:
                answer((revision, self.store.changes_since(revision)))
            else:
                self._polls.append((until_ms, revision, answer))

    def _state(self, place: Place) -> PartitionState:
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

    # -- one life

    @property
    def faults(self) -> int:
        return sum(self.counts[name] for name in ("kills", "torn", "pauses", "cuts", "store_away", "power"))

    def run(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        self._schedule_clients()
        self._schedule_faults()
        while self.counts["steps"] < self.steps:
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
                for partition in broker.partitions:
                    if partition.is_online:
                        self.checks.look(broker.node_id, broker.life, partition)

    def _on_cut(self, offsets: int) -> None:
        self.counts["truncations"] += offsets > 0

    # -- clients

    def _schedule_clients(self) -> None:
        self._at(self.clock.now_ms() + self.rng.randint(1, 30), self._produce)

    def _produce(self) -> None:
        self._schedule_clients()
        self.send(self.rng.choice(self.places))

    def send(self, place: Place) -> None:
        """To whom someone takes for the leader, which may be long ago."""
        value = b"%d" % next(self._values)
        views = [broker.image.state(place) for broker in self.brokers.values()]
        leaders = [view.leader for view in views if view is not None and view.leader in self.brokers]
        if not leaders:
            return
        self.call(
            "client",
            self.rng.choice(leaders),
            ("produce", place, value),
            lambda got: self._acked(place, value, got),
            CALL_MS,
        )

    def _acked(self, place: Place, value: bytes, answer: int | ErrorCode | None) -> None:
        if isinstance(answer, ErrorCode):
            self.counts["refused"] += 1
        elif answer is not None:
            self.counts["acked"] += 1
            self.checks.acknowledged(place, answer, value)

    # -- faults

    def _schedule_faults(self) -> None:
        self._at(self.clock.now_ms() + self.rng.randint(20, self.pace_ms), self._fault)

    def _fault(self) -> None:
        self._schedule_faults()
        kinds = [self._kill, self._tear, self._pause, self._cut_link, self._cut_store, self._heal, self._store_away]
        self.rng.choice(kinds)()

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
        if self.is_durable and self.rng.random() < 0.5:
            self.counts["power"] += 1
            broker.disk.lose_power()
        else:
            broker.disk.restart()
        self._at(self.clock.now_ms() + self.rng.choice((20, 500, 3000, 6000)), lambda: self._revive(broker))

    def _revive(self, broker: SimBroker) -> None:
        if not broker.is_up:
            try:
                broker.start()
            except Killed:
                self._die(broker)

    def _tear(self) -> None:
        up = self._up()
        if up:
            self.rng.choice(up).disk.die_after(self.rng.randint(1, 12))

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

    # -- the end

    def _calm(self) -> None:
        """Nothing goes wrong any more: all that was acknowledged is everywhere, and all are in sync."""
        self._events = [event for event in self._events if not self._is_trouble(event[2])]
        heapq.heapify(self._events)
        self._heal()
        self._store_down_until_ms = 0
        self.loss = self.repeat = 0.0
        for broker in self.brokers.values():
            broker.paused_until_ms = 0
            broker.disk.disarm()
            if not broker.is_up:
                broker.start()
        until_ms = self.clock.now_ms() + QUIET_MS
        while self.clock.now_ms() < until_ms and not self._is_calm():
            for _ in range(200):
                self._step()
        if not self._is_calm():
            raise Violation(f"it does not come to rest: {self._where()}")
        self._check_all()

    def _is_trouble(self, action: Callable[[], None]) -> bool:
        return action in (self._fault, self._produce)

    def _states(self) -> list[PartitionState]:
        image = next(iter(self.brokers.values())).image
        return [state for place in self.places if (state := image.state(place)) is not None]

    def _is_calm(self) -> bool:
        for place in self.places:
            state = self._state(place)
            if set(state.isr) != set(state.replicas) or state.leader == NO_LEADER:
                return False
            ends = set()
            for node in state.replicas:
                partitions = self.brokers[node].partitions
                partition = partitions.replicas.get(place.topic_id, {}).get(place.number) if partitions else None
                if partition is None or not partition.is_online:
                    return False
                if node != state.leader and partition.following is None:
                    return False
                ends.add(partition.log.end_offset)
                ends.add(partition.high_watermark)
            if len(ends) != 1:
                return False
        return True

    def _where(self) -> str:
        lines = []
        for place in self.places:
            found = self.store.get(keys.partition(*place))
            lines.append(f"{place.number}: {found.value.decode() if found else None}")
            for node, broker in self.brokers.items():
                partition = (
                    broker.partitions.replicas.get(TOPIC_ID, {}).get(place.number) if broker.partitions else None
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
                partition = broker.partitions.replicas.get(place.topic_id, {}).get(place.number)
                if partition is None:
                    continue
                held = dict(entries_of(partition, 0, partition.log.end_offset))
                for offset, value in acked.items():
                    if held.get(offset, (0, b""))[1] != value:
                        raise Violation(f"lost: {value!r} was acknowledged at {offset}, {broker.node_id} lacks it")
