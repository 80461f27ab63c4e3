"""One seeded run of a classic group: members join, are killed and return, over a bad network, with a log that
sometimes cannot be written, and coordinators that are recovered from the log.

After every step:
- OneOwnerPerPartition: of the members that believe in the newest generation, no two own the same partition;
- OffsetsNeverRetreat: a commit of a generation never replaces one that was accepted in a later generation;
- NoPendingRequestIsLost: a client that waits for a response is a member, and the coordinator has a timer for it.
Once there are no more faults, the group is soon stable with exactly the running members, and every partition has an
owner.
"""

from functools import partial
from random import Random
from typing import Any, ClassVar, NamedTuple

from penstock.foundation.decision import NO_PRODUCER, NO_TICKET, ClientRequest, Decision, StateRecord, Ticket
from penstock.foundation.errors import CoordinatorNotAvailable, NotCoordinator, PenstockError
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.membership import State
from penstock.groups.commands import ClientDisconnected
from penstock.groups.coordinator import GroupCoordinator
from tests.simulation.classic_member import BACKOFF_MS, HEARTBEAT_MS, PARTITIONS, REQUEST_MS, TOPIC, ClassicMember
from tests.simulation.group_machines import GROUP
from tests.simulation.group_simulation import CALM, COORDINATOR, GroupSimulation, Request, Response
from tests.simulation.network import Conditions, FakeNetwork
from tests.unit.groups.coordinator_harness import image_of, settings_of, topic_of

DELAY_MS = 500
LATE = 0.04
"""The share of requests that are delayed for seconds; of every other one a copy arrives in time."""


class Marker(NamedTuple):
    """The end of a transaction, in the log."""

    producer_id: int
    committed: bool


class Sent(NamedTuple):
    """A request in flight, over a connection to one incarnation of the coordinator."""

    request: Request
    incarnation: int


class ClassicGroupRun(GroupSimulation):
    fault_names = ("deaths", "restarts", "failed_persists", "cuts", "stuck")
    actions: ClassVar = {
        "nothing": 900,
        "change_conditions": 10,
        "die": 10,
        "leave": 5,
        "return": 25,
        "restart": 5,
        "break_log": 15,
        "end_transaction": 40,
        "disconnect": 10,
        "cut": 8,
        "heal": 15,
        "get_stuck": 4,
        "get_unstuck": 6,
    }
    """Each is called with a random client."""

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__(seed, steps)
        self.network = FakeNetwork(Random(self.rng.random()), self.clock, self._conditions())
        self.log: list[tuple[StateRecord, int] | Marker] = []
        self.persist_failures = 0.0
        """The share of decisions that cannot be persisted."""
        self.is_rough = True
        """Whether requests may be delayed for seconds and repeated."""
        self.incarnation = 0
        self._late: list[tuple[int, int, Sent]] = []
        self._ids = 0
        self._tickets = 0
        self._waiting: dict[Ticket, tuple[int, int]] = {}
        self._generations: dict[int, int] = {}
        """The newest generation in which an offset of each partition was committed."""
        self.machine = self._new_machine()
        self.machine.loaded(self.clock.now_ms())
        self.clients = self._new_clients()

    def _new_clients(self) -> list[Any]:
        return [
            ClassicMember(
                number, Random(self.rng.random()), partial(self._send, number), is_static=self.rng.random() < 0.4
            )
            for number in range(self.rng.randint(3, 8))
        ]

    # -- steps

    def _start(self) -> None:
        for client in self.clients:
            client.start(self.clock.now_ms())

    def _step_ms(self) -> int:
        return self.rng.randint(1, 150)

    def _calm_step_ms(self) -> int:
        return 10

    def _step(self) -> None:
        now_ms = self.clock.now_ms()
        late, self._late = self._late, []
        for entry in late:
            if entry[0] <= now_ms:
                self._on_request(*entry[1:])
            else:
                self._late.append(entry)
        self._deliver()
        while (at_ms := self.machine.wake_at_ms) is not None and at_ms <= now_ms:
            self._carry_out(self.machine.wake(now_ms))
        for client in self.clients:
            client.tick(now_ms)

    # -- actions

    def _conditions(self) -> Conditions:
        return Conditions(
            delay_ms_max=self.rng.choice((20, 200, 1000)),
            loss=self.rng.choice((0.0, 0.02, 0.1)),
            repeat=self.rng.choice((0.0, 0.05)),
        )

    def _disturb(self) -> None:
        self._act(self.rng.choice(self.clients))

    def _change_conditions(self, _: Any) -> None:
        self.network.conditions = self._conditions()

    def _die(self, client: Any) -> None:
        if client.is_running:
            client.stop()
            self.counts["deaths"] += 1
            if self.rng.random() < 0.5:  # the broker sees that its connection is closed
                self._disconnect(client)

    def _leave(self, client: Any) -> None:
        if client.is_running:
            client.leave(self.clock.now_ms())
            self.counts["leaves"] += 1

    def _return(self, client: Any) -> None:
        if not client.is_running:
            client.start(self.clock.now_ms())
            self.counts["returns"] += 1

    def _break_log(self, _: Any) -> None:
        self.persist_failures = self.rng.choice((0.0, 0.0, 0.3, 1.0))

    def _get_stuck(self, client: Any) -> None:
        client.is_stuck = True
        self.counts["stuck"] += 1

    def _get_unstuck(self, client: Any) -> None:
        client.is_stuck = False

    def _disconnect(self, client: Any) -> None:
        """A client's connection breaks: the coordinator notices it, and cannot respond any more."""
        for ticket in [ticket for ticket, (number, _) in self._waiting.items() if number == client.number]:
            del self._waiting[ticket]
            self.counts["disconnects"] += 1
            self._carry_out(
                self.machine.decide(NO_TICKET, ClientDisconnected(group_id=GROUP, ticket=ticket), self.clock.now_ms())
            )

    def _cut(self, client: Any) -> None:
        """Requests, responses or both are lost until the network heals."""
        self.counts["cuts"] += 1
        if self.rng.random() < 0.7:
            self.network.cut(client.number, COORDINATOR)
        if self.rng.random() < 0.7:
            self.network.cut(COORDINATOR, client.number)

    def _send(self, number: int, request: Request) -> None:
        """Sends a request. Now and then it, or a copy of it, is delayed."""
        sent = Sent(request, self.incarnation)
        luck = self.rng.random() if self.is_rough else 1.0
        if luck < LATE:
            late_ms = self.clock.now_ms() + self.rng.randint(1000, 10_000)
            self._late.append((late_ms, number, sent))
        if luck > LATE / 2:
            self.network.send(number, COORDINATOR, sent)

    def _restart(self, _: Any = None) -> None:
        """Replaces the coordinator by one recovered from the log. Connections to the old one are closed."""
        self.counts["restarts"] += 1
        self.incarnation += 1
        for client, number in self._waiting.values():
            if self.rng.random() < 0.5:
                self.network.send(COORDINATOR, client, Response(number, NotCoordinator("no longer")))
        self._waiting.clear()
        self.machine = self._new_machine()
        for entry in self.log:
            if isinstance(entry, Marker):
                self.machine.end_transaction(*entry)
            else:
                self.machine.apply(*entry)
        self.machine.loaded(self.clock.now_ms())

    def _end_transaction(self, client: Any) -> None:
        if client.transaction_is_open:
            client.transaction_is_open = False
            self.counts["transactions"] += 1
            marker = Marker(client.number, self.rng.random() < 0.7)
            self.log.append(marker)
            self.machine.end_transaction(*marker)

    # -- the coordinator's shell

    def _new_machine(self) -> GroupCoordinator:
        return GroupCoordinator(
            settings=settings_of(initial_rebalance_delay_ms=DELAY_MS),
            image=image_of(topic_of(TOPIC, PARTITIONS)),
            new_member_id=self._new_member_id,
        )

    def _new_member_id(self, name: str) -> str:
        self._ids += 1
        return f"{name}-{self._ids}"

    def _on_request(self, source: Any, sent: Sent) -> None:
        if sent.incarnation != self.incarnation:
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
        if decision.persist and self.rng.random() < self.persist_failures:
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
        client, number = self._waiting.pop(ticket)
        self.network.send(COORDINATOR, client, Response(number, value))

    def _on_response(self, target: Any, response: Response) -> None:
        self.clients[target].receive(*response, self.clock.now_ms())

    # -- invariants

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
                f"NoPendingRequestIsLost: {waiting} wait, {group.roster.ids} are members"
            )
            assert {*group.joins.values(), *group.syncs.values()} == set(self._waiting), "NoPendingRequestIsLost"
            assert self.machine.wake_at_ms is not None
            self.counts["stable_steps"] += group.state is State.STABLE
        else:
            assert not self._waiting, "NoPendingRequestIsLost: a client waits for a group that does not exist"

    def _check_owners(self) -> None:
        believers = [member for member in self.clients if member.believes]
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

    def _end_faults(self) -> None:
        """One more failure, then none."""
        if self.rng.random() < 0.5:
            self.rng.choice(self.clients).stop()
            self._restart()
        super()._end_faults()
        self.persist_failures = 0.0
        self.is_rough = False
        self._late.clear()

    def _check_progress(self) -> None:
        """After the longest session and rebalance timeouts the group is stable.

        A stuck member may stay in the group, with its share, for as long as no other member changes.
        """
        alive = [member for member in self.clients if member.is_running and not member.is_stuck]
        stuck = [member for member in self.clients if member.is_running and member.is_stuck]
        for member in self.clients:
            member.reconnect()
        self._pass(self._patience_ms(stuck))
        group = self._group()
        if not alive:
            assert stuck or group is None or group.is_empty, "progress: no member runs, and the group is not empty"
            return
        assert group is not None, "progress: there is no group"
        assert group.state is State.STABLE, f"progress: the group is {group.state_name}"
        wanted = {member.member_id for member in alive}
        present = set(group.roster.ids)
        assert wanted <= present <= wanted | {member.member_id for member in stuck}, "progress: the wrong members"
        assert all(member.believes and member.generation == group.generation for member in alive), (
            "progress: a member does not know its assignment"
        )
        owned = set().union(*(member.owned for member in alive))
        assert owned == set(range(PARTITIONS)) or present > wanted, "progress: a partition has no owner"
        self.counts["generations"] += group.generation

    def _patience_ms(self, stuck: list[ClassicMember]) -> int:
        """The coordinator waits twice for a stuck member: to join, and if it is a static member to sync."""
        session_ms = max(member.session_ms for member in self.clients)
        rebalance_ms = max(member.rebalance_ms for member in self.clients)
        slack_ms = REQUEST_MS + DELAY_MS + 2 * HEARTBEAT_MS + 10 * (BACKOFF_MS + CALM.delay_ms_max)
        return session_ms + rebalance_ms + (rebalance_ms if stuck else 0) + slack_ms
