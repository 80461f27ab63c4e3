"""One seeded run of a group whose members are replaced by ones that use the other protocol, in both directions, with
all faults of classic_group_run.py.

After every step:
- OneOwnerPerPartition: of all members that believe to own a partition, only one has it in the newest epoch: the
  generation of the classic or the member epoch of the consumer protocol; a consumer group never assigns it to two;
- ClaimsAreKnown: a member in its current epoch of a consumer group believes to own only what is assigned to it,
  unless it is static and requests are repeated; where they arrive once and in order, so does every member;
- OffsetsNeverRetreat: a commit of a former owner never replaces one of a later owner;
- NoPendingRequestIsLost: a client that waits for a response is a member, and the coordinator has a timer for it.
After every restart:
- StateIsRecovered: the new coordinator of a consumer group has exactly the state of the old one.
Once there are no more faults, the group soon has the protocol of its members, is stable with exactly the running
members, and every partition has an owner.
"""

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from penstock.foundation.decision import Decision, StateRecord, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.membership import State
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.coordinator import GroupCoordinator
from tests.simulation.classic_group_run import DELAY_MS, ClassicGroupRun
from tests.simulation.classic_member import PARTITIONS, TOPIC
from tests.simulation.consumer_group_run import RECOVERED, check_assigned_once
from tests.simulation.group_machines import GROUP
from tests.simulation.heartbeat_client import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS
from tests.simulation.migrating_consumers import ConsumerHost
from tests.simulation.network import Conditions
from tests.unit.groups.coordinator_harness import image_of, settings_of, topic_of

Stamp = tuple[int, int]
"""An era and an epoch of it: a group that was empty starts again with epoch 1, in a new era."""


class GroupMigrationRun(ClassicGroupRun):
    def __init__(self, seed: int, steps: int) -> None:
        self.era = 0
        self._had_members = False
        self._stamps: dict[int, tuple[Stamp, str]] = {}
        """Of the newest commit of each partition, and the member that committed."""
        rng = Random(seed)
        # Mostly a group may migrate both ways.
        self.may_upgrade, self.may_downgrade = rng.choice((*((True, True),) * 5, (True, False), (False, True)))
        self.is_cooperative = rng.random() < 0.5
        self.is_orderly = rng.random() < 0.5
        """Whether a request arrives once, before the next is sent, or never: as over one connection."""
        super().__init__(seed, steps)
        self.is_rough = not self.is_orderly

    def _conditions(self) -> Conditions:
        conditions = super()._conditions()
        return replace(conditions, repeat=0.0) if self.is_orderly else conditions

    def _new_clients(self) -> list[Any]:
        hosts = [
            ConsumerHost(
                number, Random(self.rng.random()), partial(self._send, number), is_static=self.rng.random() < 0.4
            )
            for number in range(self.rng.randint(2, 6))
        ]
        for host in hosts:
            host.is_cooperative = self.is_cooperative
        return hosts

    def _new_machine(self) -> GroupCoordinator:
        return GroupCoordinator(
            settings=settings_of(
                initial_rebalance_delay_ms=DELAY_MS,
                consumer_session_timeout_ms=SESSION_MS,
                consumer_heartbeat_interval_ms=HEARTBEAT_MS,
                may_upgrade=self.may_upgrade,
                may_downgrade=self.may_downgrade,
            ),
            image=image_of(topic_of(TOPIC, PARTITIONS)),
            new_member_id=self._new_member_id,
        )

    def _calm_step_ms(self) -> int:
        return 20

    # -- actions

    def _disturb(self) -> None:
        if self.rng.random() < 0.01:
            # One or the other protocol is rolled out.
            consumer_protocol = self.rng.choice((0.0, 0.0, 0.5, 1.0, 1.0))
            for host in self.clients:
                host.consumer_protocol = consumer_protocol
        if self.rng.random() < 0.03:
            self._replace(self.rng.choice(self.clients))
        super()._disturb()

    def _replace(self, host: ConsumerHost) -> None:
        """Stops a host's consumer, properly or not, and starts the next one."""
        if host.is_running:
            if self.rng.random() < 0.8:
                host.leave(self.clock.now_ms())
            else:
                host.stop()
        host.start(self.clock.now_ms())
        self.counts["replaced"] += 1

    def _restart(self, _: Any = None) -> None:
        before = self.machine.groups.get(GROUP)
        if self.rng.random() < 0.3:
            self._compact()
        super()._restart()
        after = self.machine.groups.get(GROUP)
        if isinstance(before, ConsumerGroup):
            assert isinstance(after, ConsumerGroup), f"StateIsRecovered: the group is {after}"
            for name in RECOVERED:
                was, found = getattr(before.state, name), getattr(after.state, name)
                assert found == was, f"StateIsRecovered: {name} is {found}, was {was}"

    def _compact(self) -> None:
        last = {entry[0].key: index for index, entry in enumerate(self.log) if isinstance(entry[0], StateRecord)}
        kept = []
        for index, entry in enumerate(self.log):
            record = entry[0]
            assert isinstance(record, StateRecord)
            if last[record.key] == index and record.value is not None:
                kept.append(entry)
        self.log = kept

    def _carry_out(self, decision: Decision) -> None:
        before = self.machine.groups.get(GROUP)
        super()._carry_out(decision)
        after = self.machine.groups.get(GROUP)
        has_members = bool(_members(after))
        self.era += self._had_members and not has_members
        self._had_members = has_members
        if has_members:
            if isinstance(before, ClassicGroup) and isinstance(after, ConsumerGroup):
                self.counts["upgrades"] += 1
            self.counts["downgrades"] += isinstance(before, ConsumerGroup) and isinstance(after, ClassicGroup)

    def _reply(self, ticket: Ticket, value: Any) -> None:
        super()._reply(ticket, (self.era, value))

    # -- invariants

    def _check(self) -> None:
        self._check_owners()
        self._check_offsets()
        group = self.machine.groups.get(GROUP)
        waiting = {}
        if isinstance(group, ClassicGroup):
            waiting = {**group.joins, **group.syncs}
            assert set(waiting) <= set(group.roster.ids), "NoPendingRequestIsLost"
            assert set(waiting.values()) == set(self._waiting), "NoPendingRequestIsLost"
            self.counts["stable_steps"] += group.state is State.STABLE
        else:
            assert not self._waiting, "NoPendingRequestIsLost: a consumer group responds at once"
        if isinstance(group, ConsumerGroup):
            self._check_consumer(group)
        assert self.machine.wake_at_ms is not None

    def _check_owners(self) -> None:
        claims: dict[int, list[tuple[Stamp, int]]] = {}
        for host in self.clients:
            for number, stamp in host.claims().items():
                claims.setdefault(number, []).append((stamp, host.number))
        for number, found in claims.items():
            newest = max(stamp for stamp, _ in found)
            owners = [host for stamp, host in found if stamp == newest]
            assert len(owners) == 1, f"OneOwnerPerPartition: {owners} own {number} in {newest}"
            self.counts["stale_claims"] += len(found) > 1

    def _check_consumer(self, group: ConsumerGroup) -> None:
        state = group.state
        check_assigned_once(state)
        for member in state.members.values():
            assert member.epoch <= state.target_epoch <= state.epoch, "EpochsInOrder"
            self.counts["classic_member_steps"] += member.classic is not None
            self.counts[member.state.name] += member.classic is not None
        for host in self.clients:
            member = state.members.get(host.member_id)
            # If requests are repeated, a late one of a predecessor takes over an instance id, and then an old one of
            # its holder takes it over again, without partitions.
            if member is not None and (self.is_orderly or not host.is_static):
                known = {partition.partition for partition in (*member.assigned, *member.revoking)}
                since = (self.era, -1 if self.is_orderly else member.epoch)
                claimed = {number for number, stamp in host.claims().items() if stamp >= since}
                assert claimed <= known, f"ClaimsAreKnown: {host.number} owns {claimed}, is known to own {known}"

    def _check_offsets(self) -> None:
        for number, committed in self.machine.offsets.of_group(GROUP).get(TOPIC, {}).items():
            era, epoch, owner = committed.metadata.split(".")
            stamp = (int(era), int(epoch))
            before, last = self._stamps.get(number, ((0, -1), ""))
            # A member may commit late for partitions that it has owned all the time (KIP-1251).
            assert stamp >= before or owner == last, (
                f"OffsetsNeverRetreat: partition {number} was at {before} by {last}, now at {stamp} by {owner}"
            )
            self.counts["offsets_moved"] += stamp > before
            self._stamps[number] = (max(stamp, before), owner)

    def _check_progress(self) -> None:
        for host in self.clients:
            host.is_stuck = False
            if not self.is_orderly:
                host.reconnect()  # requests in flight are sent again, and may arrive twice
        self._pass(2 * (SESSION_MS + max(REBALANCE_MS, 8000)) + 20 * HEARTBEAT_MS)
        self._check_stable(self.machine.groups.get(GROUP), [host for host in self.clients if host.is_running])

    def _check_stable(self, group: Any, alive: list[ConsumerHost]) -> None:
        if isinstance(group, ClassicGroup) and not self.may_upgrade:
            alive = [host for host in alive if not host.uses_consumer_protocol] or alive
        if not alive:
            assert group is None or group.is_empty, "progress: no member runs, and the group is not empty"
            return
        assert group is not None, "progress: there is no group"
        assert group.state_name == "Stable", f"progress: the group is {group.state_name}"
        if self.may_upgrade and self.may_downgrade:
            kind = ConsumerGroup if any(host.uses_consumer_protocol for host in alive) else ClassicGroup
            assert isinstance(group, kind), f"progress: the group is a {type(group).__name__}"
        assert _members(group) == {host.member_id for host in alive}, "progress: the wrong members"
        owned = sorted(number for host in alive for number in host.claims())
        assert owned == list(range(PARTITIONS)), f"progress: owned are {owned}"
        if isinstance(group, ConsumerGroup):
            sizes = [len(host.claims()) for host in alive]
            assert max(sizes) - min(sizes) <= 1, f"progress: shares of {sizes}"
        self.counts["consumer_ends"] += isinstance(group, ConsumerGroup)
        self.counts["mixed_ends"] += len({host.uses_consumer_protocol for host in alive}) > 1


def _members(group: Any) -> set[str]:
    if isinstance(group, ClassicGroup):
        return set(group.roster.ids)
    return set(group.state.members) if isinstance(group, ConsumerGroup) else set()
