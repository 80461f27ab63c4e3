"""One seeded life of a streams group: threads of an application, topics, a bad network and a coordinator that comes
and goes.

After every step:
- OneOwnerPerTask: of all who believe to own an active task, one was told so in the newest epoch; where requests
  arrive once and in order, all others are no members any more; the coordinator never has an active task at two
  members;
- OneRolePerProcess: the coordinator never has the state of a task twice in one process, in whichever role;
- EpochsInOrder: no member is ahead of the target, and the target is not ahead of the group;
- RevocationIsBounded: no member keeps others waiting for longer than its rebalance timeout.
After every restart:
- EverythingRemembered: the broker that takes over knows exactly what was known.
And once nothing goes wrong any more, every member owns what the target says, every task has an owner, and tasks with
state have as many copies as they can have.
"""

from collections import Counter
from random import Random

from penstock.cluster.image import ClusterImage
from penstock.foundation.errors import PenstockError
from penstock.groups.modern.members import MemberState
from penstock.groups.streams.members import HeldTasks
from penstock.groups.streams.tasks import Role, Task
from penstock.groups.streams.topology import configure
from penstock.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.simulation.clock import FakeClock
from tests.simulation.consumer_client import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS
from tests.simulation.consumer_machine import image_of, settings_of, topic_of
from tests.simulation.network import FakeNetwork, Weather
from tests.simulation.streams_client import StreamsThread
from tests.simulation.streams_machine import StreamsMachine

BROKER = "broker"
SOURCES = ("words", "clicks", "users")
PARTITIONS_MAX = 7
LATE_MS = 500
"""How late a timer may be acted on: one step."""
REFUSED_MS = 12_000
"""How much later, if the log may refuse what is decided a few times in a row."""
REMEMBERED = (
    "epoch",
    "metadata_hash",
    "validated_topology_epoch",
    "assignment_configs",
    "target_epoch",
    "members",
    "targets",
    "holders",
)


def _internal(name: str, partitions: int = 0) -> TopicInfo:
    return TopicInfo(name=name, partitions=partitions, replication_factor=-1, topic_configs=())


def _subtopology(subtopology_id: str, **values: object) -> Subtopology:
    nothing = dict.fromkeys(
        (
            "source_topics",
            "source_topic_regex",
            "state_changelog_topics",
            "repartition_sink_topics",
            "repartition_source_topics",
            "copartition_groups",
        ),
        (),
    )
    return Subtopology(subtopology_id=subtopology_id, **{**nothing, **values})  # type: ignore[arg-type]


def topology_of(rng: Random) -> Topology:
    """A count after a repartition; maybe a join of two topics, and a stateless part."""
    parts = [
        _subtopology("0", source_topics=("words",), repartition_sink_topics=("app-r",)),
        _subtopology(
            "1",
            repartition_source_topics=(_internal("app-r", rng.choice((0, 0, 3))),),
            state_changelog_topics=(_internal("app-counts"),),
        ),
    ]
    if rng.random() < 0.5:
        together = CopartitionGroup(source_topics=(0, 1), source_topic_regex=(), repartition_source_topics=())
        parts.append(
            _subtopology(
                "2",
                source_topics=("clicks", "users"),
                state_changelog_topics=(_internal("app-joined"),),
                copartition_groups=(together,),
            )
        )
    else:
        parts.append(_subtopology("2", source_topics=("clicks", "users")))
    return Topology(epoch=0, subtopologies=parts)


class StreamsGroupRun:
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
        joined = self.rng.randint(1, 4)
        self.sizes: dict[str, int] = {"words": self.rng.randint(1, 4), "clicks": joined, "users": joined}
        self.incarnations: Counter[str] = Counter()
        self.revision = 0
        self.topology = topology_of(self.rng)
        self.machine = StreamsMachine(self._image(), self._settings())
        self.answered: set[tuple[str, str, int]] = set()
        self.revoking: dict[str, tuple[int, HeldTasks]] = {}
        """Since when each member has to give up what."""
        self.threads = [
            self._new_thread(f"p{process}-t{number}", f"p{process}")
            for process in range(self.rng.randint(2, 4))
            for number in range(self.rng.randint(1, 3))
        ]

    def _settings(self) -> object:
        return settings_of(
            group_streams_session_timeout_ms=SESSION_MS,
            group_streams_heartbeat_interval_ms=HEARTBEAT_MS,
            group_streams_num_standby_replicas=self.rng.choice((0, 1, 1, 2)),
            group_streams_initial_rebalance_delay_ms=self.rng.choice((0, 500, 3000)),
        )

    def _image(self) -> ClusterImage:
        self.revision += 1
        topics = (topic_of(name, size, self.incarnations[name]) for name, size in self.sizes.items())
        return image_of(*topics, revision=self.revision)

    def _new_thread(self, place: str, process_id: str) -> StreamsThread:
        self.counts["lives"] += 1
        return StreamsThread(
            place=place,
            process_id=process_id,
            member_id=f"{place}-{self.counts['lives']}",
            topology=self.topology,
            request_timeout_ms=3000 if self.is_orderly else self.rng.choice((400, 3000)),
            rng=self.rng,
            send=lambda number, request: self.network.send(place, BROKER, (number, request)),
            next_ms=self.clock.now_ms() + self.rng.randint(0, 2000),
        )

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
            (self._hang, 1),
            (self._create_wanted, 8),
            (self._change_topics, 0.5),
            (self._repair_topics, 4),
            (self._change_settings, 1),
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
        for thread in self.threads:
            thread.tick(now_ms)
        self._roll_persistence()
        self.counts.update(self.machine.wake(now_ms))
        for source, target, message in self.network.arrivals():
            self._deliver(str(source), str(target), message)
        self.counts["steps"] += 1
        self._check()

    def _deliver(self, source: str, target: str, message: tuple[object, ...]) -> None:
        number, body = message
        if target == BROKER:
            assert isinstance(body, StreamsGroupHeartbeatRequest)
            self._handle(source, int(str(number)), body)
            return
        for thread in self.threads:
            if thread.place == target:
                assert isinstance(body, StreamsGroupHeartbeatResponse | PenstockError)
                before = thread.epoch
                thread.receive(int(str(number)), body, self.clock.now_ms())
                self.counts["fenced"] += before > 0 and thread.epoch == 0

    def _handle(self, source: str, number: int, request: StreamsGroupHeartbeatRequest) -> None:
        self._roll_persistence()
        answer = self.machine.ask(request, self.clock.now_ms(), client_id=source)
        self.counts["not_persisted"] += answer is None
        call = (source, request.member_id, number)
        if answer is not None and call not in self.answered:
            # A connection gives one answer to one request; what comes twice is a late copy.
            self.answered.add(call)
            self.network.send(BROKER, source, (number, answer))

    def _roll_persistence(self) -> None:
        self.machine.weather.persists = self.rng.random() >= self.persist_failures

    # -- what happens

    def _nothing(self) -> None:
        """Most of the time nothing happens."""

    def _running(self) -> StreamsThread | None:
        found = [thread for thread in self.threads if thread.is_running]
        return self.rng.choice(found) if found else None

    def _kill(self) -> None:
        """One thread, or its whole process."""
        thread = self._running()
        if thread is not None:
            is_all = self.rng.random() < 0.5
            for one in self.threads:
                if one is thread or (is_all and one.process_id == thread.process_id):
                    one.stop()
            self.counts["kills"] += 1

    def _leave(self) -> None:
        thread = self._running()
        if thread is not None:
            thread.leave()
            self.counts["leaves"] += 1

    def _return(self) -> None:
        found = [index for index, thread in enumerate(self.threads) if not thread.is_running]
        if found:
            index = self.rng.choice(found)
            old = self.threads[index]
            self.threads[index] = self._new_thread(old.place, old.process_id)
            self.threads[index].number = old.number
            self.counts["returns"] += 1

    def _hang(self) -> None:
        thread = self._running()
        if thread is not None:
            thread.hangs = not thread.hangs
            self.counts["hangs"] += thread.hangs

    def _create_wanted(self) -> None:
        """The broker creates topics that the group has asked for, or some of them."""
        wanted = {name: topic for name, topic in self.machine.wanted.items() if name not in self.sizes}
        self.machine.wanted.clear()
        for name, topic in wanted.items():
            if self.rng.random() < 0.8:
                self.sizes[name] = topic.partitions
                self.counts["created"] += 1
        if wanted:
            self._publish()

    def _change_topics(self) -> None:
        name = self.rng.choice((*SOURCES, "app-counts", "app-r"))
        if name not in self.sizes:
            if name in SOURCES:
                self.sizes[name] = self.rng.randint(1, 4)
        elif name in SOURCES and self.rng.random() < 0.4:
            self.sizes[name] = min(PARTITIONS_MAX, self.sizes[name] + self.rng.randint(1, 3))
            self.counts["topics_grown"] += 1
        else:
            del self.sizes[name]
            self.incarnations[name] += 1
            self.counts["topics_deleted"] += 1
        self._publish()

    def _repair_topics(self) -> None:
        """The people who run the application put right what they were told of."""
        topology = self.machine.group.state.topology
        if topology is None or configure(topology, self.machine.image).is_ready:
            return
        most = max(self.sizes.get("clicks", 1), self.sizes.get("users", 1))
        self.sizes = {"words": self.sizes.get("words", 2), "clicks": most, "users": most}
        self.incarnations.update(("app-r", "app-counts", "app-joined"))
        self.counts["repairs"] += 1
        self._publish()

    def _change_settings(self) -> None:
        self.machine.settings = self._settings()  # type: ignore[assignment]
        self.counts["settings"] += 1

    def _publish(self) -> None:
        self._roll_persistence()
        self.machine.set_image(self._image(), self.clock.now_ms())

    def _restart(self) -> None:
        self.counts["restarts"] += 1
        before = {name: getattr(self.machine.group.state, name) for name in REMEMBERED}
        self.machine.restart(self.clock.now_ms(), compacted=self.rng.random() < 0.3)
        after = {name: getattr(self.machine.group.state, name) for name in REMEMBERED}
        self.revoking.clear()  # the broker that takes over begins to count
        for name in REMEMBERED:
            assert after[name] == before[name], f"EverythingRemembered: {name} is {after[name]}, was {before[name]}"

    def _cut(self) -> None:
        place = self.rng.choice(self.threads).place
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
        holders: dict[Task, set[str]] = {}
        in_process: dict[tuple[str, str, int], str] = {}
        for member in state.members.values():
            for task in (*member.assigned, *member.revoking):
                holders.setdefault(task, set()).add(member.member_id)
                here = (member.process_id, task.subtopology_id, task.partition)
                assert here not in in_process, f"OneRolePerProcess: {here} is with {in_process[here]} and {member}"
                in_process[here] = member.member_id
            assert member.epoch <= state.target_epoch <= state.epoch, "EpochsInOrder"
            assert bool(member.revoking) <= (member.state is MemberState.UNREVOKED_PARTITIONS)
            self.counts[member.state.name] += 1
        for task, members in holders.items():
            assert task.role is Role.STANDBY or len(members) == 1, f"OneOwnerPerTask: {members} hold {task}"
        assert holders == {task: set(members) for task, members in state.holders.items()}
        self._check_targets()

    def _check_targets(self) -> None:
        state = self.machine.group.state
        active = Counter(task for target in state.targets.values() for task in target if task.role is Role.ACTIVE)
        assert all(count == 1 for count in active.values()), "OneOwnerPerTask: a target gives one to two"
        self.counts["standbys"] += any(task.role is Role.STANDBY for task in state.holders)

    def _check_claims(self) -> None:
        claims: dict[Task, list[tuple[int, StreamsThread]]] = {}
        for thread in self.threads:
            for task, epoch in thread.claims.items():
                if task.role is Role.ACTIVE:
                    claims.setdefault(task, []).append((epoch, thread))
        for task, found in claims.items():
            newest = max(epoch for epoch, _ in found)
            owners = [thread.place for epoch, thread in found if epoch == newest]
            assert len(owners) == 1, f"OneOwnerPerTask: {owners} own {task} in epoch {newest}"
            members = [one.place for _, one in found if one.member_id in self.machine.group.state.members]
            assert len(members) <= 1 or not self.is_orderly, f"OneOwnerPerTask: {members} own {task}"
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
        """Nothing goes wrong any more. Connections are new ones, so members say everything once more."""
        self.network.heal()
        self.network.weather = Weather(delay_ms_max=20)
        self.persist_failures = 0.0
        for thread in self.threads:
            thread.hangs = False
            thread.reconnect()
        self.sizes = dict.fromkeys(SOURCES, 3)  # internal topics may not fit any more: they are created anew
        self._publish()
        self._settle()
        self._settle()
        for thread in self.threads:
            thread.reconnect()  # a late copy may have got an answer that was meant for the member
        self._pass(REBALANCE_MS + 20 * HEARTBEAT_MS)  # that may take a rebalance, with the target in pieces
        self._check_rest()
        # One more change, which the log does not take at first.
        self.sizes["users"] = self.sizes["clicks"] = 4
        self.sizes.pop("app-joined", None)
        self.machine.weather.persists = False
        self.machine.set_image(self._image(), self.clock.now_ms())
        self._settle()
        self._check_rest()

    def _settle(self) -> None:
        self._pass(SESSION_MS + REBALANCE_MS + 5 * HEARTBEAT_MS)
        for name, topic in self.machine.wanted.items():
            self.sizes.setdefault(name, topic.partitions)
        self.machine.wanted.clear()
        self._publish()
        self._pass(20 * HEARTBEAT_MS)

    def _pass(self, ms: int) -> None:
        until_ms = self.clock.now_ms() + ms
        while self.clock.now_ms() < until_ms:
            self.step(199)

    def _check_rest(self) -> None:
        state = self.machine.group.state
        running = {thread.member_id: thread for thread in self.threads if thread.is_running}
        assert set(state.members) == set(running), "some are members that do not run, or run and are no members"
        assert state.name == ("Stable" if running else "Empty"), f"the group is {state.name}"
        if not running:
            return
        for member_id, thread in running.items():
            assert set(thread.claims) == state.targets[member_id], f"{thread.place} does not own its target"
        assert state.topology is not None
        configured = configure(state.topology, self.machine.image)
        owned = Counter(task for thread in running.values() for task in thread.claims)
        wanted = {
            Task(Role.ACTIVE, subtopology_id, number)
            for subtopology_id, count in configured.task_counts.items()
            for number in range(count)
        }
        assert {task for task in owned if task.role is Role.ACTIVE} == wanted, "not every task has an owner"
        processes = {thread.process_id for thread in running.values()}
        copies = min(self.machine.settings.streams_standby_replicas, len(processes) - 1)
        for task in wanted:
            expected = copies if task.subtopology_id in configured.stateful else 0
            assert owned[task.as_role(Role.STANDBY)] == expected, f"{task} has not {expected} copies"
