"""One seeded run of a consumer or streams group: members, topics, a bad network and coordinators that fail over.

After every step:
- one owner: of all members that believe to own a partition or active task, only one has it in the newest epoch; where
  requests arrive once and in order, all others are no longer members; the coordinator never assigns it to two;
- EpochsInOrder: no member is ahead of the target, and the target is not ahead of the group;
- RevocationIsBounded: no member delays the others for longer than its rebalance timeout.
After every restart:
- StateIsRecovered: the new coordinator has exactly the state of the old one.
Once there are no more faults, every member owns its target assignment, and everything has an owner.
"""

from collections import Counter
from random import Random
from typing import Any, ClassVar

from penstock.cluster.image import ClusterImage
from penstock.groups.consumer.members import MemberState
from tests.simulation.group_machines import GroupMachine, image_of, topic_of
from tests.simulation.group_simulation import COORDINATOR, GroupSimulation, Request, Response
from tests.simulation.heartbeat_client import HEARTBEAT_MS, REBALANCE_MS, HeartbeatClient
from tests.simulation.network import Conditions, FakeNetwork

PARTITIONS_MAX = 7
LATE_MS = 500
"""How late a timer may run: one step."""
NOT_PERSISTED_MS = 12_000
"""How much later, if the log cannot be written a few times in a row."""


class HeartbeatGroupRun(GroupSimulation):
    fault_names = ("kills", "restarts", "cuts", "hangs", "not_persisted")
    one_owner: ClassVar[str]
    """The name of the invariant that there is one owner."""
    recovered: ClassVar[tuple[str, ...]]
    """The fields of a group's state that are recovered from the log."""

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__(seed, steps)
        self.is_orderly = self.rng.random() < 0.5
        """Whether a request arrives once, before the next is sent, or never: as over one connection."""
        conditions = Conditions(
            delay_ms_max=self.rng.choice((50, 500) if self.is_orderly else (500, 4000)),
            loss=self.rng.choice((0.0, 0.02, 0.1)),
            repeat=0.0 if self.is_orderly else self.rng.choice((0.05, 0.2)),
        )
        self.network = FakeNetwork(Random(self.rng.random()), self.clock, conditions)
        self.persist_failures = self.rng.choice((0.0, 0.02, 0.1))
        self.revoking_ms_max = REBALANCE_MS + LATE_MS + (NOT_PERSISTED_MS if self.persist_failures else 0)
        self.sizes = self._new_topics()
        """The numbers of partitions by topic."""
        self.incarnations: Counter[str] = Counter()
        self.revision = 0
        self.machine: Any = self._new_machine()
        self.answered: set[tuple[str, str, int]] = set()
        self.revoking: dict[str, tuple[int, Any]] = {}
        """Since when each member has to revoke what."""
        self.clients = self._new_clients()

    def _new_topics(self) -> dict[str, int]:
        raise NotImplementedError

    def _new_machine(self) -> GroupMachine:
        raise NotImplementedError

    def _new_clients(self) -> list[Any]:
        raise NotImplementedError

    def _successor(self, old: Any) -> Any:
        """A new client at the same place, after `old` has ended."""
        raise NotImplementedError

    def _image(self) -> ClusterImage:
        self.revision += 1
        topics = (topic_of(name, size, self.incarnations[name]) for name, size in self.sizes.items())
        return image_of(*topics, revision=self.revision)

    def _client_fields(self, place: str) -> dict[str, Any]:
        """What all new clients have, in the order in which it is drawn."""
        return {
            "place": place,
            "request_timeout_ms": 3000 if self.is_orderly else self.rng.choice((400, 3000)),
            "rng": self.rng,
            "send": lambda request: self.network.send(place, COORDINATOR, request),
            "next_ms": self.clock.now_ms() + self.rng.randint(0, 2000),
        }

    # -- steps

    def _step_ms(self) -> int:
        return self.rng.randint(1, self.rng.choice((10, 50, 200, 400)))

    def _calm_step_ms(self) -> int:
        return self.rng.randint(1, 199)

    def _step(self) -> None:
        now_ms = self.clock.now_ms()
        for client in self.clients:
            client.tick(now_ms)
        self._draw_persistence()
        self.counts.update(self.machine.wake(now_ms))
        self._deliver()

    def _on_request(self, source: Any, message: Request) -> None:
        number, body, version = message
        self._draw_persistence()
        answer = self.machine.ask(body, self.clock.now_ms(), version=version, client_id=source)
        self.counts["not_persisted"] += answer is None
        call = (source, body.member_id, number)
        if answer is not None and call not in self.answered:
            # A connection has one response for each request; the second copy of a request is not answered.
            self.answered.add(call)
            self.network.send(COORDINATOR, source, Response(number, answer))

    def _on_response(self, target: Any, response: Response) -> None:
        (client,) = (client for client in self.clients if client.place == target)
        before = client.epoch
        client.receive(*response, self.clock.now_ms())
        self.counts["fenced"] += before > 0 and client.epoch == 0

    def _draw_persistence(self) -> None:
        self.machine.can_persist = self.rng.random() >= self.persist_failures

    # -- actions

    def _running(self) -> Any:
        found = [client for client in self.clients if client.is_running]
        return self.rng.choice(found) if found else None

    def _kill(self) -> None:
        client = self._running()
        if client is not None:
            self._stop(client)
            self.counts["kills"] += 1

    def _stop(self, client: Any) -> None:
        client.stop()

    def _leave(self) -> None:
        client = self._running()
        if client is not None:
            client.leave()
            self.counts["leaves"] += 1

    def _return(self) -> None:
        found = [index for index, client in enumerate(self.clients) if not client.is_running]
        if found:
            index = self.rng.choice(found)
            old = self.clients[index]
            self.clients[index] = self._successor(old)
            self.clients[index].requests = old.requests
            self.counts["returns"] += 1

    def _hang(self) -> None:
        client = self._running()
        if client is not None:
            client.is_stuck = not client.is_stuck
            self.counts["hangs"] += client.is_stuck

    def _cut(self) -> None:
        place = self.rng.choice(self.clients).place
        ends = [(place, COORDINATOR), (COORDINATOR, place)]
        for source, target in self.rng.choice((ends, ends[:1], ends[1:])):
            self.network.cut(source, target)
        self.counts["cuts"] += 1

    def _restart(self) -> None:
        self.counts["restarts"] += 1
        before = {name: getattr(self.machine.group.state, name) for name in self.recovered}
        self.machine.restart(self.clock.now_ms(), compacted=self.rng.random() < 0.3)
        self.revoking.clear()  # the timeouts start again
        for name, was in before.items():
            found = getattr(self.machine.group.state, name)
            assert found == was, f"StateIsRecovered: {name} is {found}, was {was}"

    def _publish(self) -> None:
        """The group sees a new image of the topics."""
        self._draw_persistence()
        self.machine.set_image(self._image(), self.clock.now_ms())

    # -- invariants

    def _exclusive(self, client: Any) -> dict[Any, int]:
        """What a client owns that only one member may own, and the epochs."""
        owned: dict[Any, int] = client.owned
        return owned

    def _check(self) -> None:
        self._check_owners()
        self._check_revocations()
        state = self.machine.group.state
        for member in state.members.values():
            assert member.epoch <= state.target_epoch <= state.epoch, "EpochsInOrder"
            assert bool(member.revoking) <= (member.state is MemberState.UNREVOKED_PARTITIONS)
            self.counts[member.state.name] += 1

    def _check_owners(self) -> None:
        claims: dict[Any, list[tuple[int, HeartbeatClient[Any]]]] = {}
        for client in self.clients:
            for each, epoch in self._exclusive(client).items():
                claims.setdefault(each, []).append((epoch, client))
        for each, found in claims.items():
            newest = max(epoch for epoch, _ in found)
            owners = [client.place for epoch, client in found if epoch == newest]
            assert len(owners) == 1, f"{self.one_owner}: {owners} own {each} in epoch {newest}"
            members = [one.place for _, one in found if one.member_id in self.machine.group.state.members]
            assert len(members) <= 1 or not self.is_orderly, f"{self.one_owner}: {members} own {each}"
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
                    f"RevocationIsBounded: {member_id} has not revoked {member.revoking}"
                )

    # -- the end

    def _end_faults(self) -> None:
        super()._end_faults()
        self.persist_failures = 0.0
        for client in self.clients:
            client.is_stuck = False
            client.reconnect()

    def _await_rebalance(self) -> None:
        """After full heartbeats on new connections: a late copy may have got the response for another heartbeat."""
        for client in self.clients:
            client.reconnect()
        self._pass(REBALANCE_MS + 20 * HEARTBEAT_MS)

    def _publish_unpersisted(self) -> None:
        """The group sees a new image, and what it decides cannot be persisted at first."""
        self.machine.can_persist = False
        self.machine.set_image(self._image(), self.clock.now_ms())

    def _check_stable(self) -> dict[str, Any]:
        """Raises AssertionError if a running member does not own its target; returns the running members by id."""
        state = self.machine.group.state
        running = {client.member_id: client for client in self.clients if client.is_running}
        assert set(state.members) == set(running), "some are members that do not run, or run and are no members"
        assert state.name == ("Stable" if running else "Empty"), f"the group is {state.name}"
        for member_id, client in running.items():
            assert set(client.owned) == state.targets[member_id], f"{client.place} does not own its target"
        return running
