"""One seeded life of a group whose members are replaced by ones that speak the other protocol, in both directions,
with all that may happen to groups (group_run.py): deaths, restarts, a bad network, a log that cannot be written.

After every step:
- OneOwnerPerPartition: of all who believe to own a partition, one was told so in the newest epoch, be it a generation
  of the classic or a member epoch of the newer protocol; and a consumer group never has a partition in two hands;
- ClaimsAreKnown: a member in the epoch that a consumer group knows it in believes to own only what is held for it,
  unless it is static and requests are repeated; where they arrive once and in order, so does every member;
- OffsetsNeverRetreat: a commit of a former owner never replaces one of a later owner;
- NobodyIsForgotten: whoever waits for an answer is a member, and the coordinator will wake up for it.
After every restart:
- EverythingRemembered: who takes over a consumer group knows exactly what was known.
When the faults stop, the group is soon of the kind that its members make it, stable, made of exactly those who are
alive, and every partition has an owner.
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
from tests.simulation.consumer_client import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS
from tests.simulation.consumer_group_run import REMEMBERED
from tests.simulation.group_member import GROUP, PARTITIONS, TOPIC
from tests.simulation.group_run import CALM_DELAY_MS, COORDINATOR, DELAY_MS, GroupRun, Replied
from tests.simulation.moving_member import Seat
from tests.simulation.network import Weather
from tests.unit.groups.coordinating import image_of, settings_of, topic_of

Stamp = tuple[int, int]
"""An era and an epoch of it: a group that was empty counts from the beginning again."""


class MovingRun(GroupRun):
    def __init__(self, seed: int, steps: int) -> None:
        self.era = 0
        self._had_members = False
        self._stamps: dict[int, tuple[Stamp, str]] = {}
        """Of the newest commit of each partition, and whose it is."""
        rng = Random(seed)
        # Mostly a group may move both ways.
        self.may_upgrade, self.may_downgrade = rng.choice((*((True, True),) * 5, (True, False), (False, True)))
        self.is_cooperative = rng.random() < 0.5
        self.is_orderly = rng.random() < 0.5
        """Whether a request arrives once, before the next is sent, or never: as over one connection."""
        super().__init__(seed, steps)
        self.is_rough = not self.is_orderly

    def _weather(self) -> Weather:
        weather = super()._weather()
        return replace(weather, repeat=0.0) if self.is_orderly else weather

    def _new_members(self) -> list[Any]:
        seats = [
            Seat(number, Random(self.rng.random()), partial(self._send, number), is_static=self.rng.random() < 0.4)
            for number in range(self.rng.randint(2, 6))
        ]
        for seat in seats:
            seat.is_cooperative = self.is_cooperative
        return seats

    def _make(self) -> GroupCoordinator:
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

    # -- what happens

    def _disturb(self) -> None:
        if self.rng.random() < 0.01:
            # Someone rolls out the one protocol or the other.
            newer = self.rng.choice((0.0, 0.0, 0.5, 1.0, 1.0))
            for seat in self.members:
                seat.newer = newer
        if self.rng.random() < 0.03:
            self._replace(self.rng.choice(self.members))
        super()._disturb()

    def _replace(self, seat: Seat) -> None:
        """One is stopped properly, or not, and the next one is started in its place."""
        if seat.is_up:
            if self.rng.random() < 0.8:
                seat.leave(self.clock.now_ms())
            else:
                seat.die()
        seat.start(self.clock.now_ms())
        self.counts["replaced"] += 1

    def _restart(self) -> None:
        before = self.machine.groups.get(GROUP)
        if self.rng.random() < 0.3:
            self._compact()
        super()._restart()
        after = self.machine.groups.get(GROUP)
        if isinstance(before, ConsumerGroup):
            assert isinstance(after, ConsumerGroup), f"EverythingRemembered: it is {after}"
            for name in REMEMBERED:
                was, found = getattr(before.state, name), getattr(after.state, name)
                assert found == was, f"EverythingRemembered: {name} is {found}, was {was}"

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
        member, number = self._waiting.pop(ticket)
        self.network.send(COORDINATOR, member, Replied(number, (self.era, value)))

    # -- what must hold

    def _check(self) -> None:
        self._check_owners()
        self._check_offsets()
        group = self.machine.groups.get(GROUP)
        waiting = {}
        if isinstance(group, ClassicGroup):
            waiting = {**group.joins, **group.syncs}
            assert set(waiting) <= set(group.roster.ids), "NobodyIsForgotten"
            assert set(waiting.values()) == set(self._waiting), "NobodyIsForgotten"
            self.counts["stable_steps"] += group.state is State.STABLE
        else:
            assert not self._waiting, "NobodyIsForgotten: a consumer group lets nobody wait"
        if isinstance(group, ConsumerGroup):
            self._check_consumer(group)
        assert self.machine.wake_at_ms is not None

    def _check_owners(self) -> None:
        claims: dict[int, list[tuple[Stamp, int]]] = {}
        for seat in self.members:
            for number, stamp in seat.claims().items():
                claims.setdefault(number, []).append((stamp, seat.number))
        for number, found in claims.items():
            newest = max(stamp for stamp, _ in found)
            owners = [seat for stamp, seat in found if stamp == newest]
            assert len(owners) == 1, f"OneOwnerPerPartition: {owners} own {number} in {newest}"
            self.counts["stale_claims"] += len(found) > 1

    def _check_consumer(self, group: ConsumerGroup) -> None:
        state, held = group.state, {}
        for member in state.members.values():
            for place in (*member.assigned, *member.revoking):
                assert place not in held, f"OneOwnerPerPartition: {held[place]} and {member.member_id} hold {place}"
                held[place] = member.member_id
            assert member.epoch <= state.target_epoch <= state.epoch, "EpochsInOrder"
            self.counts["hosted_steps"] += member.classic is not None
            self.counts[member.state.name] += member.classic is not None
        assert held == state.owners
        for seat in self.members:
            member = state.members.get(seat.member_id)
            # If requests are repeated, a late one of a predecessor takes an instance id away, and an old one of its
            # holder takes it back, with nothing.
            if member is not None and (self.is_orderly or not seat.is_static):
                known = {place.partition for place in (*member.assigned, *member.revoking)}
                since = (self.era, -1 if self.is_orderly else member.epoch)
                claimed = {number for number, stamp in seat.claims().items() if stamp >= since}
                assert claimed <= known, f"ClaimsAreKnown: {seat.number} owns {claimed}, is known to own {known}"

    def _check_offsets(self) -> None:
        for number, committed in self.machine.offsets.of_group(GROUP).get(TOPIC, {}).items():
            era, epoch, owner = committed.metadata.split(".")
            stamp = (int(era), int(epoch))
            before, last = self._stamps.get(number, ((0, -1), ""))
            # A member may be late with what it has had all the time (KIP-1251).
            assert stamp >= before or owner == last, (
                f"OffsetsNeverRetreat: partition {number} was at {before} by {last}, now at {stamp} by {owner}"
            )
            self.counts["offsets_moved"] += stamp > before
            self._stamps[number] = (max(stamp, before), owner)

    def _check_progress(self) -> None:
        """One more blow, then no more faults: after the longest session and rebalance timeouts all must be well."""
        if self.rng.random() < 0.5:
            self.rng.choice(self.members).die()
            self._restart()
        self.failing = 0.0
        self.is_rough = False
        self._late.clear()
        self.network.heal()
        self.network.weather = Weather(delay_ms_max=CALM_DELAY_MS)
        for seat in self.members:
            seat.is_stuck = False
            if not self.is_orderly:
                seat.reconnect()  # what was under way is asked again, and may arrive twice
        end_ms = self.clock.now_ms() + 2 * (SESSION_MS + max(REBALANCE_MS, 8000)) + 20 * HEARTBEAT_MS
        while self.clock.now_ms() < end_ms:
            self.step(20)
        self._check_rest(self.machine.groups.get(GROUP), [seat for seat in self.members if seat.is_up])

    def _check_rest(self, group: Any, alive: list[Seat]) -> None:
        if isinstance(group, ClassicGroup) and not self.may_upgrade:
            alive = [seat for seat in alive if not seat.is_newer] or alive
        if not alive:
            assert group is None or group.is_empty, "progress: nobody is alive, and the group is not empty"
            return
        assert group is not None, "progress: there is no group"
        assert group.state_name == "Stable", f"progress: the group is {group.state_name}"
        if self.may_upgrade and self.may_downgrade:
            kind = ConsumerGroup if any(seat.is_newer for seat in alive) else ClassicGroup
            assert isinstance(group, kind), f"progress: the group is a {type(group).__name__}"
        assert _members(group) == {seat.member_id for seat in alive}, "progress: the wrong members"
        owned = sorted(number for seat in alive for number in seat.claims())
        assert owned == list(range(PARTITIONS)), f"progress: owned are {owned}"
        if isinstance(group, ConsumerGroup):
            sizes = [len(seat.claims()) for seat in alive]
            assert max(sizes) - min(sizes) <= 1, f"progress: shares of {sizes}"
        self.counts["consumer_ends"] += isinstance(group, ConsumerGroup)
        self.counts["mixed_ends"] += len({seat.is_newer for seat in alive}) > 1


def _members(group: Any) -> set[str]:
    if isinstance(group, ClassicGroup):
        return set(group.roster.ids)
    return set(group.state.members) if isinstance(group, ConsumerGroup) else set()
