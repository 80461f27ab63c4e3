"""One seeded life of a group coordinator: members that come, work, die and return, a bad network, a log that
sometimes cannot be written, and coordinators that are lost and made again of the log.

After every step:
- OneOwnerPerPartition: of the members that believe in the newest generation, no two own the same partition;
- OffsetsNeverRetreat: a commit under a generation never replaces one that was accepted under a later generation;
- NobodyIsForgotten: whoever waits for an answer is a member, and the coordinator will wake up for it.
When the faults stop, the group is soon stable, made of exactly those who are alive, and every partition has an owner.
"""

from collections import Counter
from functools import partial
from random import Random
from typing import Any, NamedTuple

from penstock.foundation.decision import NO_PRODUCER, NO_TICKET, ClientRequest, Decision, StateRecord, Ticket
from penstock.foundation.errors import CoordinatorNotAvailable, NotCoordinator, PenstockError
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.membership import State
from penstock.groups.commands import ClientDisconnected
from penstock.groups.coordinator import GroupCoordinator
from tests.simulation.clock import FakeClock
from tests.simulation.group_member import (
    BACKOFF_MS,
    GROUP,
    HEARTBEAT_MS,
    PARTITIONS,
    REQUEST_MS,
    TOPIC,
    Request,
    SimulatedMember,
)
from tests.simulation.network import FakeNetwork, Weather
from tests.unit.groups.coordinating import image_of, settings_of, topic_of

COORDINATOR = "coordinator"
DELAY_MS = 500
CALM_DELAY_MS = 20
HAPPENINGS = {
    "nothing": 900,
    "weather": 10,
    "die": 10,
    "leave": 5,
    "return": 25,
    "restart": 5,
    "log": 15,
    "marker": 40,
    "hang_up": 10,
    "cut": 8,
    "heal": 15,
    "stick": 4,
    "unstick": 6,
}
"""What may disturb a step, and how often."""
LATE = 0.04
"""How many requests are held up for seconds; of every other one a copy comes in time."""


class Marker(NamedTuple):
    """The end of a transaction, in the log."""

    producer_id: int
    committed: bool


class Sent(NamedTuple):
    """A request on its way, over a connection to one life of the coordinator."""

    request: Request
    life: int


class Replied(NamedTuple):
    number: int
    value: Any


class GroupRun:
    def __init__(self, seed: int, steps: int) -> None:
        self.rng = Random(seed)
        self.steps = steps
        self.clock = FakeClock()
        self.network = FakeNetwork(Random(self.rng.random()), self.clock, self._weather())
        self.counts: Counter[str] = Counter()
        self.log: list[tuple[StateRecord, int] | Marker] = []
        self.failing = 0.0
        """How many decisions cannot be persisted."""
        self.is_rough = True
        self.life = 0
        self._late: list[tuple[int, int, Sent]] = []
        self._ids = 0
        self._tickets = 0
        self._waiting: dict[Ticket, tuple[int, int]] = {}
        self._generations: dict[int, int] = {}
        """The newest generation that an offset of each partition was committed in."""
        self.machine = self._make()
        self.machine.loaded(self.clock.now_ms())
        self.members = self._new_members()

    def _new_members(self) -> list[Any]:
        return [
            SimulatedMember(
                number,
                Random(self.rng.random()),
                partial(self._send, number),
                is_static=self.rng.random() < 0.4,
            )
            for number in range(self.rng.randint(3, 8))
        ]

    @property
    def faults(self) -> int:
        return sum(self.counts[name] for name in ("deaths", "restarts", "failed_persists", "cuts", "stuck"))

    # -- one life

    def run(self) -> None:
        for member in self.members:
            member.start(self.clock.now_ms())
        for _ in range(self.steps):
            self._disturb()
            self.step(self.rng.randint(1, 150))
        self._check_progress()

    def step(self, ms: int) -> None:
        self.clock.advance(ms)
        late, self._late = self._late, []
        for entry in late:
            if entry[0] <= self.clock.now_ms():
                self._on_request(*entry[1:])
            else:
                self._late.append(entry)
        for source, target, message in self.network.arrivals():
            if target == COORDINATOR:
                self._on_request(source, message)
            else:
                self.members[target].on_reply(message.number, message.value, self.clock.now_ms())
        while (at_ms := self.machine.wake_at_ms) is not None and at_ms <= self.clock.now_ms():
            self._carry_out(self.machine.wake(self.clock.now_ms()))
        for member in self.members:
            member.tick(self.clock.now_ms())
        self.counts["steps"] += 1
        self._check()

    # -- faults

    def _weather(self) -> Weather:
        return Weather(
            delay_ms_max=self.rng.choice((20, 200, 1000)),
            loss=self.rng.choice((0.0, 0.02, 0.1)),
            repeat=self.rng.choice((0.0, 0.05)),
        )

    def _disturb(self) -> None:
        """Now and then something happens."""
        member = self.rng.choice(self.members)
        (what,) = self.rng.choices(list(HAPPENINGS), list(HAPPENINGS.values()))
        if what == "weather":
            self.network.weather = self._weather()
        elif what == "die" and member.is_up:
            member.die()
            self.counts["deaths"] += 1
            if self.rng.random() < 0.5:  # the broker sees its connection go
                self._hang_up(member.number)
        elif what == "leave" and member.is_up:
            member.leave(self.clock.now_ms())
            self.counts["leaves"] += 1
        elif what == "return" and not member.is_up:
            member.start(self.clock.now_ms())
            self.counts["returns"] += 1
        elif what == "hang_up":
            self._hang_up(member.number)
        elif what == "restart":
            self._restart()
        elif what == "log":
            self.failing = self.rng.choice((0.0, 0.0, 0.3, 1.0))
        elif what == "marker" and member.transaction_is_open:
            self._end_transaction(member, self.rng.random() < 0.7)
        elif what == "cut":
            self._cut(member)
        elif what == "heal":
            self.network.heal()
        elif what in ("stick", "unstick"):
            member.is_stuck = what == "stick"
            self.counts["stuck"] += member.is_stuck

    def _hang_up(self, number: int) -> None:
        """A member's connection breaks: the coordinator hears of it, and no answer goes that way."""
        for ticket in [ticket for ticket, (member, _) in self._waiting.items() if member == number]:
            del self._waiting[ticket]
            self.counts["hang_ups"] += 1
            self._carry_out(
                self.machine.decide(NO_TICKET, ClientDisconnected(group_id=GROUP, ticket=ticket), self.clock.now_ms())
            )

    def _cut(self, member: SimulatedMember) -> None:
        """Requests, or answers, or both are lost until the network heals."""
        self.counts["cuts"] += 1
        if self.rng.random() < 0.7:
            self.network.cut(member.number, COORDINATOR)
        if self.rng.random() < 0.7:
            self.network.cut(COORDINATOR, member.number)

    def _send(self, number: int, request: Request) -> None:
        """A request sets out; now and then it is held up on its way, or a copy of it is."""
        sent = Sent(request, self.life)
        luck = self.rng.random() if self.is_rough else 1.0
        if luck < LATE:
            late_ms = self.clock.now_ms() + self.rng.randint(1000, 10_000)
            self._late.append((late_ms, number, sent))
        if luck > LATE / 2:
            self.network.send(number, COORDINATOR, sent)

    def _restart(self) -> None:
        """The coordinator is gone; another one is made of the log. Connections to the old one are gone too."""
        self.counts["restarts"] += 1
        self.life += 1
        for member, number in self._waiting.values():
            if self.rng.random() < 0.5:
                self.network.send(COORDINATOR, member, Replied(number, NotCoordinator("no longer")))
        self._waiting.clear()
        self.machine = self._make()
        for entry in self.log:
            if isinstance(entry, Marker):
                self.machine.end_transaction(*entry)
            else:
                self.machine.apply(*entry)
        self.machine.loaded(self.clock.now_ms())

    def _end_transaction(self, member: SimulatedMember, committed: bool) -> None:
        member.transaction_is_open = False
        self.counts["transactions"] += 1
        self.log.append(Marker(member.number, committed))
        self.machine.end_transaction(member.number, committed)

    # -- the coordinator's shell

    def _make(self) -> GroupCoordinator:
        return GroupCoordinator(
            settings=settings_of(initial_rebalance_delay_ms=DELAY_MS),
            image=image_of(topic_of(TOPIC, PARTITIONS)),
            new_member_id=self._new_member_id,
        )

    def _new_member_id(self, name: str) -> str:
        self._ids += 1
        return f"{name}-{self._ids}"

    def _on_request(self, source: Any, sent: Sent) -> None:
        if sent.life != self.life:
            return
        request = sent.request
        self._tickets += 1
        ticket = self._tickets
        self._waiting[ticket] = (source, request.number)
        command = ClientRequest(
            body=request.body, version=request.version, client_id=f"client-{source}", client_host="host"
        )
        try:
            decision = self.machine.decide(ticket, command, self.clock.now_ms())
        except PenstockError as error:
            self._reply(ticket, error)
        else:
            self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        if decision.persist and self.rng.random() < self.failing:
            self.counts["failed_persists"] += 1
            for reply in decision.replies:
                self._reply(reply.ticket, CoordinatorNotAvailable("the log cannot be written"))
            return
        producer_id = decision.transaction.producer_id if decision.transaction else NO_PRODUCER
        for record in decision.persist:
            self.log.append((record, producer_id))
            self.machine.apply(record, producer_id)
        for reply in decision.replies:
            self._reply(reply.ticket, reply.value)

    def _reply(self, ticket: Ticket, value: Any) -> None:
        member, number = self._waiting.pop(ticket)
        self.network.send(COORDINATOR, member, Replied(number, value))

    # -- what must hold

    def _group(self) -> ClassicGroup | None:
        group = self.machine.groups.get(GROUP)
        assert group is None or isinstance(group, ClassicGroup)
        return group

    def _check(self) -> None:
        self._check_owners()
        self._check_offsets()
        group = self._group()
        if group is not None:
            waiting = {*group.joins, *group.syncs}
            assert waiting <= set(group.roster.ids), (
                f"NobodyIsForgotten: {waiting} wait, {group.roster.ids} are members"
            )
            assert {*group.joins.values(), *group.syncs.values()} == set(self._waiting), "NobodyIsForgotten"
            assert self.machine.wake_at_ms is not None
            self.counts["stable_steps"] += group.state is State.STABLE
        else:
            assert not self._waiting, "NobodyIsForgotten: someone waits for a group that is not there"

    def _check_owners(self) -> None:
        believers = [member for member in self.members if member.believes]
        newest = max((member.generation for member in believers), default=-1)
        owners: dict[int, int] = {}
        for member in believers:
            for number in member.owned if member.generation == newest else ():
                assert number not in owners, (
                    f"OneOwnerPerPartition: {number} is owned by {owners[number]} and {member.number} "
                    f"in generation {newest}"
                )
                owners[number] = member.number

    def _check_offsets(self) -> None:
        for number, committed in self.machine.offsets.of_group(GROUP).get(TOPIC, {}).items():
            generation = int(committed.metadata)
            before = self._generations.get(number, -1)
            assert generation >= before, (
                f"OffsetsNeverRetreat: partition {number} had a commit of generation {before}, now of {generation}"
            )
            if generation > before:
                self.counts["offsets_moved"] += 1
            self._generations[number] = generation

    def _check_progress(self) -> None:
        """One more blow, then no more faults: after the longest session and rebalance timeouts all must be well.

        A member that is stuck may stay in the group, with its share, for as long as nobody else changes.
        """
        if self.rng.random() < 0.5:
            self.rng.choice(self.members).die()
            self._restart()
        self.failing = 0.0
        self.is_rough = False
        self._late.clear()
        self.network.heal()
        self.network.weather = Weather(delay_ms_max=CALM_DELAY_MS)
        alive = [member for member in self.members if member.is_up and not member.is_stuck]
        stuck = [member for member in self.members if member.is_up and member.is_stuck]
        for member in self.members:
            member.reconnect()
        end_ms = self.clock.now_ms() + self._patience_ms(stuck)
        while self.clock.now_ms() < end_ms:
            self.step(10)
        group = self._group()
        if not alive:
            assert stuck or group is None or group.is_empty, "progress: nobody is alive, and the group is not empty"
            return
        assert group is not None, "progress: there is no group"
        assert group.state is State.STABLE, f"progress: the group is {group.state_name}"
        wanted = {member.member_id for member in alive}
        present = set(group.roster.ids)
        assert wanted <= present <= wanted | {member.member_id for member in stuck}, "progress: the wrong members"
        assert all(member.believes and member.generation == group.generation for member in alive), (
            "progress: someone does not know its assignment"
        )
        owned = set().union(*(member.owned for member in alive))
        assert owned == set(range(PARTITIONS)) or present > wanted, "progress: a partition has no owner"
        self.counts["generations"] += group.generation

    def _patience_ms(self, stuck: list[SimulatedMember]) -> int:
        """Someone who is stuck is waited for twice: to join, and if it is a static member to sync."""
        session_ms = max(member.session_ms for member in self.members)
        rebalance_ms = max(member.rebalance_ms for member in self.members)
        slack_ms = REQUEST_MS + DELAY_MS + 2 * HEARTBEAT_MS + 10 * (BACKOFF_MS + CALM_DELAY_MS)
        return session_ms + rebalance_ms + (rebalance_ms if stuck else 0) + slack_ms
