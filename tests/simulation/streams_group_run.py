"""One seeded run of a streams group (heartbeat_group_run.py), with processes, state stores and internal topics.

The invariant of one owner is OneOwnerPerTask, for active tasks. Besides, after every step:
- OneRolePerProcess: the coordinator never assigns the state of a task twice within one process, in either role.
In the end, tasks with state have as many standby replicas as they can have.
"""

from collections import Counter
from random import Random
from typing import Any, ClassVar

from penstock.groups.settings import GroupSettings
from penstock.groups.streams.tasks import Role, Task
from penstock.groups.streams.topology import configure
from penstock.wire.messages.streams_group_heartbeat import CopartitionGroup, Subtopology, TopicInfo, Topology
from tests.simulation.group_machines import StreamsMachine, settings_of
from tests.simulation.heartbeat_client import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS
from tests.simulation.heartbeat_group_run import PARTITIONS_MAX, HeartbeatGroupRun
from tests.simulation.streams_client import StreamsThread

SOURCES = ("words", "clicks", "users")


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
    """A count after a repartition, and two more topics: joined, or stateless."""
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


class StreamsGroupRun(HeartbeatGroupRun):
    one_owner = "OneOwnerPerTask"
    recovered = (
        "epoch",
        "metadata_hash",
        "validated_topology_epoch",
        "assignment_configs",
        "target_epoch",
        "members",
        "targets",
        *("owners", "standbys"),
    )
    actions: ClassVar = {
        "nothing": 60,
        "kill": 2,
        "leave": 2,
        "return": 8,
        "hang": 1,
        "create_internal_topics": 8,
        "change_topics": 0.5,
        "repair_topics": 4,
        "change_settings": 1,
        "restart": 1.5,
        "cut": 1,
        "heal": 4,
    }

    def _new_topics(self) -> dict[str, int]:
        joined = self.rng.randint(1, 4)
        return {"words": self.rng.randint(1, 4), "clicks": joined, "users": joined}

    def _new_machine(self) -> StreamsMachine:
        self.topology = topology_of(self.rng)
        return StreamsMachine(self._image(), self._settings())

    def _settings(self) -> GroupSettings:
        return settings_of(
            group_streams_session_timeout_ms=SESSION_MS,
            group_streams_heartbeat_interval_ms=HEARTBEAT_MS,
            group_streams_num_standby_replicas=self.rng.choice((0, 1, 1, 2)),
            group_streams_initial_rebalance_delay_ms=self.rng.choice((0, 500, 3000)),
        )

    def _new_clients(self) -> list[Any]:
        return [
            self._new_thread(f"p{process}-t{number}", f"p{process}")
            for process in range(self.rng.randint(2, 4))
            for number in range(self.rng.randint(1, 3))
        ]

    def _new_thread(self, place: str, process_id: str) -> StreamsThread:
        self.counts["started"] += 1
        return StreamsThread(
            **self._client_fields(place),
            process_id=process_id,
            member_id=f"{place}-{self.counts['started']}",
            topology=self.topology,
        )

    # -- actions

    def _stop(self, client: StreamsThread) -> None:
        """Kills one thread, or its whole process."""
        is_process = self.rng.random() < 0.5
        for thread in self.clients:
            if thread is client or (is_process and thread.process_id == client.process_id):
                thread.stop()

    def _successor(self, old: StreamsThread) -> StreamsThread:
        return self._new_thread(old.place, old.process_id)

    def _create_internal_topics(self) -> None:
        """The broker creates the topics that the group has asked for, or some of them."""
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
        """An operator makes the topics fit the topology again."""
        topology = self.machine.group.state.topology
        if topology is None or configure(topology, self.machine.image).is_ready:
            return
        most = max(self.sizes.get("clicks", 1), self.sizes.get("users", 1))
        self.sizes = {"words": self.sizes.get("words", 2), "clicks": most, "users": most}
        self.incarnations.update(("app-r", "app-counts", "app-joined"))
        self.counts["repairs"] += 1
        self._publish()

    def _change_settings(self) -> None:
        self.machine.settings = self._settings()
        self.counts["settings"] += 1

    # -- invariants

    def _exclusive(self, client: StreamsThread) -> dict[Task, int]:
        return {task: epoch for task, epoch in client.owned.items() if task.role is Role.ACTIVE}

    def _check(self) -> None:
        super()._check()
        state = self.machine.group.state
        holders: dict[Task, set[str]] = {}
        in_process: dict[tuple[str, str, int], str] = {}
        for member in state.members.values():
            for task in (*member.assigned, *member.revoking):
                holders.setdefault(task, set()).add(member.member_id)
                here = (member.process_id, task.subtopology_id, task.partition)
                assert here not in in_process, f"OneRolePerProcess: {here} is with {in_process[here]} and {member}"
                in_process[here] = member.member_id
        for task, members in holders.items():
            assert task.role is Role.STANDBY or len(members) == 1, f"OneOwnerPerTask: {members} hold {task}"
        owners = {Task(Role.ACTIVE, *task_id): {owner} for task_id, owner in state.owners.items()}
        standbys = {Task(Role.STANDBY, *task_id): set(members) for task_id, members in state.standbys.items()}
        assert holders == owners | standbys
        active = Counter(task for target in state.targets.values() for task in target if task.role is Role.ACTIVE)
        assert all(count == 1 for count in active.values()), "OneOwnerPerTask: a target has a task twice"
        self.counts["standbys"] += bool(standbys)

    def _check_progress(self) -> None:
        self.sizes = dict.fromkeys(SOURCES, 3)  # internal topics may not fit any more: they are created anew
        self._publish()
        self._settle()
        self._settle()
        self._await_rebalance()
        self._check_stable()
        self.sizes["users"] = self.sizes["clicks"] = 4
        self.sizes.pop("app-joined", None)
        self._publish_unpersisted()
        self._settle()
        self._check_stable()

    def _settle(self) -> None:
        self._pass(SESSION_MS + REBALANCE_MS + 5 * HEARTBEAT_MS)
        for name, topic in self.machine.wanted.items():
            self.sizes.setdefault(name, topic.partitions)
        self.machine.wanted.clear()
        self._publish()
        self._pass(20 * HEARTBEAT_MS)

    def _check_stable(self) -> dict[str, Any]:
        running = super()._check_stable()
        if not running:
            return running
        state = self.machine.group.state
        assert state.topology is not None
        configured = configure(state.topology, self.machine.image)
        owned = Counter(task for thread in running.values() for task in thread.owned)
        wanted = {
            Task(Role.ACTIVE, subtopology_id, number)
            for subtopology_id, count in configured.task_counts.items()
            for number in range(count)
        }
        assert {task for task in owned if task.role is Role.ACTIVE} == wanted, "not every task has an owner"
        processes = {thread.process_id for thread in running.values()}
        standbys = min(self.machine.settings.streams_standby_replicas, len(processes) - 1)
        for task in wanted:
            expected = standbys if task.subtopology_id in configured.stateful else 0
            found = owned[task._replace(role=Role.STANDBY)]
            assert found == expected, f"{task} has {found} standby replicas, not {expected}"
        return running
