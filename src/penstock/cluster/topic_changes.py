"""Topic changes: the store writes that create, grow, configure or delete a topic. Pure.

A store limits the size of a transaction. A larger topic is created in several transactions: first its partitions,
which clients do not see yet, then its name and its own key with the number of partitions. Until then the request
holds the key `unfinished/<topic>`; the controller removes partitions of a failed request, which lack that key. A
topic is deleted in the reverse order: its name and its own key first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from penstock.cluster import keys
from penstock.cluster.elections import RESERVED_OFFSETS as RESERVED_OFFSETS
from penstock.cluster.image import COUNT_UNKNOWN, ClusterImage, PartitionState, Topic
from penstock.cluster.internal_topics import check_configs, check_mutable, check_new
from penstock.cluster.placement import Placer, Replicas, check_factor, open_brokers
from penstock.cluster.reassignment import target_replicas
from penstock.cluster.view_changes import check_name
from penstock.coordination.store import ABSENT, Check, Conflict, Delete, Op, Put
from penstock.foundation.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    PolicyViolation,
    TopicExists,
)
from penstock.log.setting_table import DELAYED_MESSAGES
from penstock.log.settings import delays_messages

OPERATIONS_MAX: Final = 100
"""Maximum number of operations in one transaction. etcd accepts 128 by default, ZooKeeper 1 MB."""
_PARTITIONS_PER_TRANSACTION: Final = OPERATIONS_MAX - 4
"""Maximum number of partitions created in one transaction, which leaves room for four other operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One transaction of a topic change that may take several transactions."""

    ops: tuple[Op, ...]
    is_last: bool = True
    is_part: bool = False
    """Whether the change takes several transactions. Then each requires that this broker is still registered: the
    end of its session deletes the key `unfinished/<topic>`, which protects the new partitions from removal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    partitions: int
    replication_factor: int
    partitions_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 stands for the default number of partitions or replicas."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    companion: bytes = b""
    """Id of the companion logs, which store queue state or delayed messages (see Topic.companion); empty: none."""
    is_queue: bool = False
    """Whether the topic is created for the queue of the same name."""


class PartitionPlan:
    """Chooses the replicas of a topic's new partitions, for one transaction at a time. If the brokers change, chooses
    again for partitions not created yet. The cost of a transaction does not depend on the size of the topic."""

    def __init__(
        self,
        topic_id: bytes,
        numbers: range,
        *,
        factor: int,
        assignments: Mapping[int, Sequence[int]],
        in_memory: bool,
        leader_epoch: int = 0,
        beside: Callable[[], Iterable[Replicas]] = tuple,
    ) -> None:
        """`assignments`: replicas given in the request; if empty, the plan chooses `factor` brokers.
        `leader_epoch`: of the new partitions. `beside`: returns the replicas of the topic's existing partitions."""
        self.topic_id: Final = topic_id
        self.numbers: Final = numbers
        self._factor = factor
        self._assignments = assignments
        self._in_memory = in_memory
        self._leader_epoch = leader_epoch
        self._beside = beside
        self._brokers: object = None
        self._placer: Placer | None = None
        self._placed: dict[int, Sequence[int]] = {}

    def next_states(
        self, image: ClusterImage, missing: Sequence[int], created: Mapping[int, PartitionState]
    ) -> dict[int, PartitionState]:
        """Returns the initial states of the first partitions of `missing`, by number: as many as fit into a
        transaction. `created`: the plan's partitions that were created earlier. Raises Kafka's errors."""
        brokers = image.brokers, image.drained, image.broker_configs
        if self._brokers != brokers:
            self._brokers = brokers
            self._placed.clear()
            if self._assignments:
                _check_assignment(image, self._assignments, first=self.numbers.start)
            else:
                beside = [*self._beside(), *(target_replicas(state) for state in created.values())]
                self._placer = Placer(open_brokers(image), self.topic_id, len(missing), self._factor, beside)
        return {
            number: _new_state(image, self._replicas(number), self._in_memory, self._leader_epoch)
            for number in missing[:_PARTITIONS_PER_TRANSACTION]
        }

    def _replicas(self, number: int) -> Sequence[int]:
        if self._placer is None:
            return self._assignments[number]
        if number not in self._placed:
            self._placed[number] = self._placer.place(number)
        return self._placed[number]


def check_create(image: ClusterImage, wanted: NewTopic, defaults: Defaults) -> None:
    """Raises Kafka's errors if a topic cannot be created."""
    check_new_name(image, wanted)
    plan_partitions(image, wanted, bytes(16), defaults)


def check_new_name(image: ClusterImage, wanted: NewTopic) -> None:
    """Raises Kafka's errors if the name is in use or invalid, or an internal topic lacks its required settings."""
    if wanted.name in image.by_name:
        raise TopicExists(f"topic {wanted.name!r} exists already")
    check_name(image, wanted.name)
    check_new(wanted.name, wanted.configs, is_plain=not (wanted.is_queue or wanted.companion))


def plan_partitions(image: ClusterImage, wanted: NewTopic, topic_id: bytes, defaults: Defaults) -> PartitionPlan:
    """Returns the placement of a new topic's partitions. Raises Kafka's errors."""
    if wanted.assignments:
        if wanted.partitions != -1 or wanted.replication_factor != -1:
            raise InvalidRequest("set an assignment, or the number of partitions and replicas, not both")
        _check_assignment(image, wanted.assignments, first=0)
        count, factor = len(wanted.assignments), -1
        _check_count(count, defaults)
    else:
        count = defaults.partitions if wanted.partitions == -1 else wanted.partitions
        _check_count(count, defaults)
        factor = defaults.replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
        check_factor(factor, len(open_brokers(image)))
    return PartitionPlan(
        topic_id,
        range(count),
        factor=factor,
        assignments=wanted.assignments,
        in_memory=wanted.configs.get("storage") == "memory",
    )


def next_create(
    image: ClusterImage,
    wanted: NewTopic,
    topic_id: bytes,
    defaults: Defaults,
    owner: str = "",
    plan: PartitionPlan | None = None,
) -> Step:
    """Returns the next transaction that creates a topic. Raises Kafka's errors.

    `owner`: a token that identifies the request. `plan`: the placement of the topic's partitions; computed if None.
    """
    check_new_name(image, wanted)
    plan = plan or plan_partitions(image, wanted, topic_id, defaults)
    topic = Topic(
        topic_id=topic_id,
        name=wanted.name,
        configs=wanted.configs,
        count=len(plan.numbers),
        companion=wanted.companion,
        is_queue=wanted.is_queue,
    )
    last = (
        Put(keys.topic_name(wanted.name), keys.encode(keys.topic(topic_id)), ABSENT),
        Put(keys.topic(topic_id), topic.dump(), ABSENT),
    )
    return _next_step(image, plan, last, owner)


def _next_step(image: ClusterImage, plan: PartitionPlan, last: tuple[Op, ...], owner: str) -> Step:
    """Returns a transaction that creates as many of the plan's missing partitions as fit; the final one also
    contains `last`. Raises Conflict while a request with another token than `owner` creates partitions."""
    topic_id = plan.topic_id
    marker, holder = keys.unfinished(topic_id), image.unfinished.get(topic_id)
    if holder not in (None, owner):
        raise Conflict(marker)  # another request is creating partitions
    created = image.incomplete[topic_id].partitions if holder is not None and topic_id in image.incomplete else {}
    missing = [number for number in plan.numbers if number not in created]
    puts = tuple(
        Put(keys.partition(topic_id, number), state.dump(), ABSENT)
        for number, state in plan.next_states(image, missing, created).items()
    )
    is_last = len(puts) == len(missing)
    if holder is not None:
        done = (*last, Delete(marker, image.version(marker))) if is_last else ()
        return Step(ops=(*puts, *done), is_last=is_last, is_part=True)
    if is_last:
        return Step(ops=(*last, *puts))
    return Step(ops=(Put(marker, keys.encode(owner), ABSENT, leased=True), *puts), is_last=False, is_part=True)


def plan_abandon(image: ClusterImage, topic_id: bytes, owner: str) -> list[Op]:
    """Returns the write that deletes the key `unfinished/<topic>` of a failed topic creation or growth, so that the
    controller removes its partitions. Empty unless the key's value is `owner`, the token of the failed request."""
    if image.unfinished.get(topic_id) != owner:
        return []
    marker = keys.unfinished(topic_id)
    return [Delete(marker, image.version(marker))]


def _new_state(
    image: ClusterImage, replicas: Sequence[int], in_memory: bool, leader_epoch: int = 0
) -> PartitionState:
    """Returns the state of a new partition. Its ISR does not contain brokers that are shutting down."""
    isr = [node for node in replicas if not image.brokers[node].leaving]
    if not isr:
        raise InvalidReplicaAssignment(f"all of the brokers {list(replicas)} are shutting down")
    return PartitionState(
        replicas=tuple(replicas),
        leader=isr[0],
        leader_epoch=leader_epoch,
        isr=tuple(isr),
        leader_broker_epoch=image.brokers[isr[0]].epoch,
        reserved_to=RESERVED_OFFSETS if in_memory else 0,
    )


def _check_count(count: int, defaults: Defaults) -> None:
    if not 1 <= count <= defaults.partitions_max:
        raise InvalidPartitions(f"the number of partitions must be 1 to {defaults.partitions_max}, got {count}")


def _check_assignment(image: ClusterImage, assignments: Mapping[int, Sequence[int]], first: int) -> None:
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise InvalidReplicaAssignment(
            f"partitions must be numbered from {first} without gaps, got {sorted(assignments)}"
        )
    sizes = {len(replicas) for replicas in assignments.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise InvalidReplicaAssignment("every partition needs the same number of replicas, at least 1")
    for number, replicas in assignments.items():
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"partition {number} names a broker twice")
        unknown = [node for node in replicas if node not in image.brokers]
        if unknown:
            raise InvalidReplicaAssignment(f"partition {number} names unknown or offline brokers: {unknown}")


def next_grow(
    image: ClusterImage,
    topic: Topic,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    defaults: Defaults,
    owner: str = "",
    plan: PartitionPlan | None = None,
) -> Step:
    """Returns the next transaction that adds partitions to a topic, up to a total of `count`. `assignments`: their
    replicas; if None, `plan` chooses them. `plan`: computed if None. `owner`: a token that identifies the request."""
    plan = plan or plan_growth(image, topic, count, assignments, defaults)
    grown = Put(keys.topic(topic.topic_id), replace(topic, count=count).dump(), topic.version)
    return _next_step(image, plan, (grown,), owner)


def plan_growth(
    image: ClusterImage, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None, defaults: Defaults
) -> PartitionPlan:
    """Returns the placement of the partitions to add until the topic has `count`. Raises Kafka's errors."""
    have = len(topic.partitions)
    if count <= have:
        raise InvalidPartitions(f"topic {topic.name!r} has {have} partitions; expected a larger number, got {count}")
    _check_count(count, defaults)
    factor = len(target_replicas(topic.partitions[0]))
    added: dict[int, Sequence[int]] = {}
    if assignments is None:
        check_factor(factor, len(open_brokers(image)))
    else:
        if len(assignments) != count - have:
            raise InvalidReplicaAssignment(
                f"{count - have} partitions are added, but the assignment has {len(assignments)}"
            )
        added = {have + number: tuple(replicas) for number, replicas in enumerate(assignments)}
        _check_assignment(image, added, first=have)
        if any(len(replicas) != factor for replicas in added.values()):
            raise InvalidReplicaAssignment(f"topic {topic.name!r} needs {factor} replicas per partition")
    # The coordinator epoch is the partition's leader epoch. For a producer whose state moves to a new partition, it
    # must not decrease: its markers would be fenced as those of a replaced coordinator.
    epoch = max(state.leader_epoch for state in topic.partitions.values()) if topic.is_internal else 0
    return PartitionPlan(
        topic.topic_id,
        range(have, count),
        factor=factor,
        assignments=added,
        in_memory=topic.configs.get("storage") == "memory",
        leader_epoch=epoch,
        beside=lambda: [target_replicas(state) for state in topic.partitions.values()],
    )


def plan_configure(topic: Topic, configs: Mapping[str, str], companion: bytes = b"") -> list[Op]:
    """Returns the write that replaces the settings of a topic. Raises InvalidConfig.

    `companion`: the id for companion logs (with the state of delays), added if the settings enable delayed messages.
    """
    check_configs(topic.name, topic.configs, configs)
    if delays_messages(topic.configs) and not delays_messages(configs):
        raise InvalidConfig(
            f"{DELAYED_MESSAGES} cannot be switched off: delayed messages of topic {topic.name!r} may be pending;"
            " create another topic"
        )
    if not delays_messages(configs) or delays_messages(topic.configs):
        return [_write_topic(topic, replace(topic, configs=configs))]
    if topic.companion:
        raise InvalidConfig(
            f"topic {topic.name!r} is or was used by a queue or share group, which cannot be combined with"
            f" {DELAYED_MESSAGES}=true; create another topic"
        )
    return [_write_topic(topic, replace(topic, configs=configs, companion=companion))]


def check_may_share(topic: Topic) -> None:
    """Raises PolicyViolation or InvalidTopic if queues and share groups cannot use this topic."""
    check_mutable(topic.name, topic.configs, "keep delivery state for")
    if delays_messages(topic.configs):
        raise PolicyViolation(
            f"topic {topic.name!r} has {DELAYED_MESSAGES}=true: queues and share groups cannot use it; read it"
            " with a consumer group, or delay messages of a queue by DelaySeconds"
        )


def plan_companion(topic: Topic, companion: bytes) -> list[Op]:
    """Returns the write that adds companion logs (queue or delay state) with this id; an empty id removes them."""
    if topic.companion == companion:
        return []
    return [_write_topic(topic, replace(topic, companion=companion))]


def _write_topic(topic: Topic, changed: Topic) -> Op:
    """Returns the write of a topic's own key; adds the number of partitions if the stored value lacks it."""
    count = len(topic.partitions) if topic.count == COUNT_UNKNOWN else topic.count
    return Put(keys.topic(topic.topic_id), replace(changed, count=count).dump(), topic.version)


def plan_delete(topic: Topic, name_version: int, beside: Sequence[Op] = ()) -> list[Op]:
    """Returns the operations of one transaction: `beside`, and the deletion of a topic and of as many of its
    partitions as fit. The controller deletes the other partitions."""
    return [
        Delete(keys.topic_name(topic.name), name_version),
        Delete(keys.topic(topic.topic_id), topic.version),
        *beside,
        *(
            Delete(keys.partition(topic.topic_id, number), state.version)
            for number, state in islice(topic.partitions.items(), _PARTITIONS_PER_TRANSACTION - len(beside))
        ),
    ]


def plan_leftovers(image: ClusterImage, topic_id: bytes, room: int) -> list[Op]:
    """Returns at most `room` operations that delete partitions left by a deleted topic or a failed create or grow."""
    incomplete = image.incomplete.get(topic_id)
    if incomplete is None or topic_id in image.unfinished or room < 3:  # two conditions and a partition
        return []
    topic = incomplete.topic or image.topics.get(topic_id)
    count = topic.count if topic is not None else 0
    if count == COUNT_UNKNOWN:
        return []  # stored by an early version: which partitions it should have is not known
    numbers = [number for number in incomplete.partitions if number >= count]
    if not numbers:
        return []
    return [
        Check(keys.topic(topic_id), topic.version if topic is not None else ABSENT),
        Check(keys.unfinished(topic_id), ABSENT),
        *(
            Delete(keys.partition(topic_id, number), incomplete.partitions[number].version)
            for number in numbers[: room - 2]
        ),
    ]


def plan_reserve(image: ClusterImage, topic_id: bytes, number: int, beyond: int) -> list[Op]:
    """Returns the write that reserves offsets from `beyond` on for a partition stored in memory only, so that it
    does not reuse offsets when it restarts empty. Empty if `beyond` is already reserved."""
    topic = image.topics.get(topic_id)
    if topic is None or number not in topic.partitions or topic.partitions[number].reserved_to > beyond:
        return []
    state = topic.partitions[number]
    return [
        Put(
            keys.partition(topic_id, number),
            replace(state, reserved_to=beyond + RESERVED_OFFSETS).dump(),
            state.version,
        )
    ]
