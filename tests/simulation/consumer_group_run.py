"""One seeded life of a consumer group: consumers, topics, a bad network and a coordinator that comes and goes.

After every step:
- OneOwnerPerPartition: of all who believe to own a partition, one was told so in the newest epoch; where requests
  arrive once and in order, all others are no members any more; the coordinator never has a partition in two hands;
- EpochsInOrder: no member is ahead of the target, and the target is not ahead of the group;
- RevocationIsBounded: nobody keeps others waiting for longer than its rebalance timeout.
After every restart:
- EverythingRemembered: who takes over knows exactly what was known.
And once nothing goes wrong any more, everyone owns what the target says, and nothing is left over.
"""

from collections import Counter
from random import Random

from penstock.cluster.image import ClusterImage
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.consumer.members import Held
from penstock.groups.modern.members import AWAY, MemberState
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.simulation.clock import FakeClock
from tests.simulation.consumer_client import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, Consumer
from tests.simulation.consumer_machine import ConsumerMachine, image_of, settings_of, topic_of
from tests.simulation.network import FakeNetwork, Weather

BROKER = "broker"
TOPICS = ("orders", "orders-eu", "orders-us", "bills", "clicks")
REGEXES = ("orders.*", "orders-..", "bills|clicks", ".*s", "nothing")
PARTITIONS_MAX = 7
LATE_MS = 500
"""How late a timer may be acted on: one step."""
REFUSED_MS = 12_000
"""How much later, if the log may refuse what is decided a few times in a row."""
REMEMBERED = ("epoch", "metadata_hash", "target_epoch", "members", "by_instance", "targets", "owners", "regexes")


class ConsumerGroupRun:
    def __init__(self, seed: int, steps: int) -> None:
        self.rng = Random(seed)
        self.steps = steps
        self.clock = FakeClock()
        self.is_orderly = self.rng.random() < 0.5
        """Whether a request arrives once, before the next is sent, or never: as over one connection."""
        weather = Weather(
            delay_ms_max=self.rng.choice((50, 500) if self.is_orderly else (500, 4000)),
            loss=self.rng.choice((0.0, 0.02, 0.1)),
            repeat=0.0 if self.is_orderly else self.rng.choice((0.05, 0.2)),
        )
        self.network = FakeNetwork(Random(self.rng.random()), self.clock, weather)
        self.persist_failures = self.rng.choice((0.0, 0.02, 0.1))
        self.revoking_ms_max = REBALANCE_MS + LATE_MS + (REFUSED_MS if self.persist_failures else 0)
        self.counts: Counter[str] = Counter()
        self.sizes: dict[str, int] = {name: self.rng.randint(1, 4) for name in self.rng.sample(TOPICS, 3)}
        self.incarnations: Counter[str] = Counter()
        self.revision = 0
        self.machine = ConsumerMachine(
            self._image(),
            settings_of(
                group_consumer_session_timeout_ms=SESSION_MS,
                group_consumer_heartbeat_interval_ms=HEARTBEAT_MS,
                group_consumer_assignors=self.rng.choice(("uniform", "range", "uniform,range")),
            ),
        )
        self.answered: set[tuple[str, str, int]] = set()
        self.revoking: dict[str, tuple[int, Held]] = {}
        """Since when each member has to give up what."""
        self.consumers = [self._new_consumer(f"c{number}") for number in range(self.rng.randint(3, 8))]

    def _image(self) -> ClusterImage:
        self.revision += 1
        topics = (topic_of(name, size, self.incarnations[name]) for name, size in self.sizes.items())
        return image_of(*topics, revision=self.revision)

    def _new_consumer(self, place: str, instance_id: str | None = None) -> Consumer:
        if instance_id is None and self.rng.random() < 0.5:
            # Seldom two are given the same one, by mistake.
            instance_id = f"instance-{place}" if self.rng.random() < 0.9 else "instance-c0"
        version = 0 if instance_id is None and self.rng.random() < 0.2 else 1
        self.counts["lives"] += 1
        consumer = Consumer(
            place=place,
            member_id="" if version == 0 else f"{place}-{self.counts['lives']}",
            instance_id=instance_id,
            version=version,
            request_timeout_ms=3000 if self.is_orderly else self.rng.choice((400, 3000)),
            rng=self.rng,
            send=lambda number, request: self.network.send(place, BROKER, (number, request, version)),
            next_ms=self.clock.now_ms() + self.rng.randint(0, 2000),
        )
        self._subscribe(consumer)
        return consumer

    def _subscribe(self, consumer: Consumer) -> None:
        by_regex = consumer.version >= 1 and self.rng.random() < 0.4
        consumer.regex = self.rng.choice(REGEXES) if by_regex else ""
        count = self.rng.randint(0 if by_regex else 1, 3)
        consumer.names = frozenset(self.rng.sample(TOPICS, count))

    # -- one life

    @property
    def faults(self) -> int:
        return sum(self.counts[name] for name in ("kills", "restarts", "cuts", "hangs", "not_persisted"))

    def run(self) -> None:
        actions = [
            (self._nothing, 60),
            (self._kill, 2),
            (self._leave, 2),
            (self._return, 8),
            (self._resubscribe, 2),
            (self._hang, 1),
            (self._change_topics, 3),
            (self._restart, 1.5),
            (self._cut, 1),
            (self._heal, 4),
        ]
        doing, weights = [action for action, _ in actions], [weight for _, weight in actions]
        for _ in range(self.steps):
            (action,) = self.rng.choices(doing, weights)
            action()
            self.step(self.rng.choice((10, 50, 200, 400)))
        self._calm()

    def step(self, ms: int) -> None:
        self.clock.advance(self.rng.randint(1, ms))
        now_ms = self.clock.now_ms()
        for consumer in self.consumers:
            consumer.tick(now_ms)
        self._roll_persistence()
        self.machine.wake(now_ms)
        for source, target, message in self.network.arrivals():
            self._deliver(str(source), str(target), message)
        self.counts["steps"] += 1
        self._check()

    def _deliver(self, source: str, target: str, message: tuple[object, ...]) -> None:
        if target == BROKER:
            number, request, version = message
            self._handle(source, int(str(number)), request, int(str(version)))
            return
        member_number, answer = message
        for consumer in self.consumers:
            if consumer.place == target:
                assert isinstance(answer, ConsumerGroupHeartbeatResponse | PenstockError)
                before = consumer.epoch
                consumer.receive(int(str(member_number)), answer, self.clock.now_ms())
                self.counts["fenced"] += before > 0 and consumer.epoch == 0

    def _handle(self, source: str, number: int, request: object, version: int) -> None:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        self._roll_persistence()
        answer = self.machine.ask(request, self.clock.now_ms(), version=version, client_id=source)
        self.counts["not_persisted"] += answer is None
        call = (source, request.member_id, number)
        if answer is not None and call not in self.answered:
            # A connection gives one answer to one request; what comes twice is a late copy, to which nobody listens.
            self.answered.add(call)
            self.network.send(BROKER, source, (number, answer))

    def _roll_persistence(self) -> None:
        self.machine.weather.persists = self.rng.random() >= self.persist_failures

    # -- what happens

    def _nothing(self) -> None:
        """Most of the time nothing happens."""

    def _running(self) -> Consumer | None:
        found = [consumer for consumer in self.consumers if consumer.is_running]
        return self.rng.choice(found) if found else None

    def _kill(self) -> None:
        consumer = self._running()
        if consumer is not None:
            consumer.stop()
            self.counts["kills"] += 1

    def _leave(self) -> None:
        consumer = self._running()
        if consumer is not None:
            comes_back = consumer.instance_id is not None and self.rng.random() < 0.7
            consumer.leave(AWAY if comes_back else -1)
            self.counts["away" if comes_back else "leaves"] += 1

    def _return(self) -> None:
        """A consumer is started again, as a new process or, seldom, as the one that had only unsubscribed."""
        found = [index for index, consumer in enumerate(self.consumers) if not consumer.is_running]
        if not found:
            return
        index = self.rng.choice(found)
        old = self.consumers[index]
        if self.rng.random() < 0.2:
            old.is_running = True
            old.start_over(self.clock.now_ms())
            self._subscribe(old)
        else:
            self.consumers[index] = self._new_consumer(old.place, old.instance_id)
            self.consumers[index].number = old.number
        self.counts["returns"] += 1

    def _resubscribe(self) -> None:
        consumer = self._running()
        if consumer is not None:
            self._subscribe(consumer)
            self.counts["resubscribed"] += 1

    def _hang(self) -> None:
        consumer = self._running()
        if consumer is not None:
            consumer.hangs = not consumer.hangs
            self.counts["hangs"] += consumer.hangs

    def _change_topics(self) -> None:
        name = self.rng.choice(TOPICS)
        if name not in self.sizes:
            self.sizes[name] = self.rng.randint(1, 4)
            self.counts["topics_made"] += 1
        elif self.rng.random() < 0.5:
            self.sizes[name] = min(PARTITIONS_MAX, self.sizes[name] + self.rng.randint(1, 3))
            self.counts["topics_grown"] += 1
        else:
            del self.sizes[name]
            self.incarnations[name] += 1
            self.counts["topics_deleted"] += 1
        self._roll_persistence()
        self.machine.set_image(self._image(), self.clock.now_ms())

    def _restart(self) -> None:
        self.counts["restarts"] += 1
        before = {name: getattr(self.machine.group.state, name) for name in REMEMBERED}
        self.machine.restart(self.clock.now_ms(), compacted=self.rng.random() < 0.3)
        after = {name: getattr(self.machine.group.state, name) for name in REMEMBERED}
        self.revoking.clear()  # who takes over begins to count
        for name in REMEMBERED:
            assert after[name] == before[name], f"EverythingRemembered: {name} is {after[name]}, was {before[name]}"

    def _cut(self) -> None:
        place = self.rng.choice(self.consumers).place
        ends = [(place, BROKER), (BROKER, place)]
        for source, target in self.rng.choice((ends, ends[:1], ends[1:])):
            self.network.cut(source, target)
        self.counts["cuts"] += 1

    def _heal(self) -> None:
        self.network.heal()

    # -- what must hold

    def _check(self) -> None:
        self._check_claims()
        self._check_revocations()
        state = self.machine.group.state
        held: dict[TopicIdPartition, str] = {}
        for member in state.members.values():
            for place in (*member.assigned, *member.revoking):
                assert place not in held, f"OneOwnerPerPartition: {held[place]} and {member.member_id} hold {place}"
                held[place] = member.member_id
            assert member.epoch <= state.target_epoch <= state.epoch, "EpochsInOrder"
            assert bool(member.revoking) <= (member.state is MemberState.UNREVOKED_PARTITIONS)
            self.counts[member.state.name] += 1
        assert held == state.owners
        targets = Counter(place for target in state.targets.values() for place in target)
        assert all(count == 1 for count in targets.values()), "OneOwnerPerPartition: a target gives one to two"

    def _check_claims(self) -> None:
        claims: dict[TopicIdPartition, list[tuple[int, Consumer]]] = {}
        for consumer in self.consumers:
            for place, epoch in consumer.claims.items():
                claims.setdefault(place, []).append((epoch, consumer))
        for place, found in claims.items():
            newest = max(epoch for epoch, _ in found)
            owners = [consumer.place for epoch, consumer in found if epoch == newest]
            assert len(owners) == 1, f"OneOwnerPerPartition: {owners} own {place} in epoch {newest}"
            members = [one.place for _, one in found if one.member_id in self.machine.group.state.members]
            assert len(members) <= 1 or not self.is_orderly, f"OneOwnerPerPartition: {members} own {place}"
            self.counts["stale_claims"] += len(found) > 1

    def _check_revocations(self) -> None:
        now_ms = self.clock.now_ms()
        for member_id, member in self.machine.group.state.members.items():
            since_ms, before = self.revoking.get(member_id, (now_ms, None))
            if not member.must_revoke:
                self.revoking.pop(member_id, None)
            elif before != member.revoking:
                self.revoking[member_id] = (now_ms, member.revoking)
            else:
                assert now_ms - since_ms < self.revoking_ms_max, (
                    f"RevocationIsBounded: {member_id} keeps what it has to give up"
                )

    # -- the end

    def _calm(self) -> None:
        """Nothing goes wrong any more. Connections are new ones, so consumers say everything once more."""
        self.network.heal()
        self.network.weather = Weather(delay_ms_max=20)
        self.persist_failures = 0.0
        self._part_rivals()
        for consumer in self.consumers:
            consumer.hangs = False
            consumer.reconnect()
        self._pass(2 * (SESSION_MS + REBALANCE_MS) + 20 * HEARTBEAT_MS)
        for consumer in self.consumers:
            consumer.reconnect()  # a late copy may have got an answer that was meant for the consumer
        self._pass(REBALANCE_MS + 20 * HEARTBEAT_MS)  # that may take a rebalance, with the target in pieces
        self._check_rest()
        # One more change, which the log does not take at first.
        self.sizes["orders"] = self.sizes.get("orders", 0) + 1
        self.machine.weather.persists = False
        self.machine.set_image(self._image(), self.clock.now_ms())
        self._pass(20 * HEARTBEAT_MS)
        self._check_rest()

    def _part_rivals(self) -> None:
        """Whoever has an instance id keeps it; others that were given the same are stopped."""
        by_instance = self.machine.group.state.by_instance
        for consumer in self.consumers:
            rivals = [one for one in self.consumers if one.is_running and one.instance_id == consumer.instance_id]
            if consumer.instance_id is not None and len(rivals) > 1:
                holder = next((one for one in rivals if one.member_id == by_instance.get(one.instance_id)), rivals[0])
                for rival in rivals:
                    if rival is not holder:
                        rival.stop()

    def _pass(self, ms: int) -> None:
        until_ms = self.clock.now_ms() + ms
        while self.clock.now_ms() < until_ms:
            self.step(199)

    def _check_rest(self) -> None:
        state = self.machine.group.state
        running = {consumer.member_id: consumer for consumer in self.consumers if consumer.is_running}
        assert set(state.members) == set(running), "some are members that do not run, or run and are no members"
        assert state.name == ("Stable" if running else "Empty"), f"the group is {state.name}"
        for member_id, consumer in running.items():
            assert set(consumer.claims) == state.targets[member_id], f"{consumer.place} does not own its target"
        subscribed = {
            name
            for member in state.members.values()
            for name in (*member.topic_names, *state.regexes.get(member.topic_regex, ()))
        }
        wanted = {
            TopicIdPartition(topic.topic_id, number)
            for topic in self.machine.image.topics.values()
            if topic.name in subscribed
            for number in topic.partitions
        }
        owned = {place for consumer in running.values() for place in consumer.claims}
        assert owned == wanted, "not every subscribed partition has an owner"
