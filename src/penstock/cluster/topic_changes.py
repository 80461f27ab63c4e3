"""Deciding on topics: what must be written to the store to make, grow, change or delete one. Pure.

A store takes only so much in one transaction. A topic that needs more is made in several: first its partitions, which
nobody sees, then its own key, which says how many there are, and its name. Whoever does that holds the key
`unfinished/<topic>` meanwhile; what lies about without it, because somebody died halfway, the controller removes. A
topic that is deleted goes the other way round: its name and its own key first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from penstock.cluster import keys
from penstock.cluster.elections import RESERVED_OFFSETS as RESERVED_OFFSETS
from penstock.cluster.image import AS_MANY_AS_THERE_ARE, ClusterImage, PartitionState, Topic
from penstock.cluster.internal_topics import check_configs, check_mutable, check_new
from penstock.cluster.placement import Placer, Replicas, check_factor, open_brokers
from penstock.cluster.reassignment import target_of
from penstock.cluster.views import check_name
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
"""Operations of one transaction. etcd takes 128 unless it is told otherwise, and ZooKeeper 1 MB of them."""
_PARTITIONS_AT_ONCE: Final = OPERATIONS_MAX - 4
"""Beside a name, a topic, a marker and who is at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One transaction of a change that may take several."""

    ops: tuple[Op, ...]
    is_last: bool = True
    is_part: bool = False
    """Whether the change takes more than one, and so depends on who began it being there still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    partitions: int
    replication_factor: int
    partitions_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as someone asks for it: -1 stands for the default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    companion: bytes = b""
    """The id of its partitions' companion logs, if they are to have some."""
    is_queue: bool = False
    """Whether it is made for the queue of its name."""


def plan_create(image: ClusterImage, wanted: NewTopic, topic_id: bytes, defaults: Defaults) -> list[Op]:
    """The writes that make a topic, if one transaction can hold them. Raises what Kafka would answer."""
    return _whole(next_create(image, wanted, topic_id, defaults))


def _whole(step: Step) -> list[Op]:
    if step.is_part:
        raise InvalidPartitions(
            f"one transaction makes at most {_PARTITIONS_AT_ONCE} partitions; make them step by step"
        )
    return list(step.ops)


class PartitionPlan:
    """Where the new partitions of a topic go: decided a few at a time, for as long as the same brokers are there.

    A topic of ten thousand partitions is made in a hundred transactions: each of them costs by what it makes.
    """

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
        """`assignments`: the replicas that the request names, if it does. `beside`: those of existing partitions."""
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
        self, image: ClusterImage, missing: Sequence[int], there: Mapping[int, PartitionState]
    ) -> dict[int, PartitionState]:
        """The first of the partitions that are missing, as many as fit into a transaction. Raises what Kafka would
        answer. `there`: those that were made before."""
        brokers = image.brokers, image.drained, image.broker_configs
        if self._brokers != brokers:
            self._brokers = brokers
            self._placed.clear()
            if self._assignments:
                _check_assignment(image, self._assignments, first=self.numbers.start)
            else:
                beside = [*self._beside(), *(target_of(state) for state in there.values())]
                self._placer = Placer(open_brokers(image), self.topic_id, len(missing), self._factor, beside)
        return {
            number: _fresh(image, self._replicas(number), self._in_memory, self._leader_epoch)
            for number in missing[:_PARTITIONS_AT_ONCE]
        }

    def _replicas(self, number: int) -> Sequence[int]:
        if self._placer is None:
            return self._assignments[number]
        if number not in self._placed:
            self._placed[number] = self._placer.place(number)
        return self._placed[number]


def check_create(image: ClusterImage, wanted: NewTopic, defaults: Defaults) -> None:
    """Raises what Kafka would answer if a topic cannot be made."""
    check_new_name(image, wanted)
    plan_partitions(image, wanted, bytes(16), defaults)


def check_new_name(image: ClusterImage, wanted: NewTopic) -> None:
    """Raises what Kafka would answer if the name is taken, or no such topic can have it."""
    if wanted.name in image.by_name:
        raise TopicExists(f"topic {wanted.name!r} exists already")
    check_name(image, wanted.name)
    check_new(wanted.name, wanted.configs, is_plain=not (wanted.is_queue or wanted.companion))


def plan_partitions(image: ClusterImage, wanted: NewTopic, topic_id: bytes, defaults: Defaults) -> PartitionPlan:
    """The partitions that a topic begins with. Raises what Kafka would answer."""
    if wanted.assignments:
        if wanted.partitions != -1 or wanted.replication_factor != -1:
            raise InvalidRequest("give an assignment, or a number of partitions and replicas, not both")
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
    """The next of the transactions that make a topic. Raises what Kafka would answer.

    `owner`: a token of the request that creates the topic. `plan`: the placement of its partitions so far.
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
    """Partitions that are not there yet, as many as fit; with the last of them, what makes them count."""
    topic_id = plan.topic_id
    marker, holder = keys.unfinished(topic_id), image.unfinished.get(topic_id)
    if holder not in (None, owner):
        raise Conflict(marker)  # somebody else is at it
    there = image.waiting[topic_id].partitions if holder is not None and topic_id in image.waiting else {}
    missing = [number for number in plan.numbers if number not in there]
    puts = tuple(
        Put(keys.partition(topic_id, number), state.dump(), ABSENT)
        for number, state in plan.next_states(image, missing, there).items()
    )
    is_last = len(puts) == len(missing)
    if holder is not None:
        done = (*last, Delete(marker, image.version(marker))) if is_last else ()
        return Step(ops=(*puts, *done), is_last=is_last, is_part=True)
    if is_last:
        return Step(ops=(*last, *puts))
    return Step(ops=(Put(marker, keys.encode(owner), ABSENT, leased=True), *puts), is_last=False, is_part=True)


def plan_abandon(image: ClusterImage, topic_id: bytes, owner: str) -> list[Op]:
    """The write that leaves what was made of a topic's partitions to the controller, to be removed."""
    if image.unfinished.get(topic_id) != owner:
        return []
    marker = keys.unfinished(topic_id)
    return [Delete(marker, image.version(marker))]


def _fresh(image: ClusterImage, replicas: Sequence[int], in_memory: bool, leader_epoch: int = 0) -> PartitionState:
    """A new partition. Brokers that are leaving follow later: they have no time for new ones."""
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
        raise InvalidPartitions(f"a topic has 1 to {defaults.partitions_max} partitions, asked for {count}")


def _check_assignment(image: ClusterImage, assignments: Mapping[int, Sequence[int]], first: int) -> None:
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise InvalidReplicaAssignment(
            f"partitions are numbered from {first} on without gaps, got {sorted(assignments)}"
        )
    sizes = {len(replicas) for replicas in assignments.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise InvalidReplicaAssignment("every partition needs the same number of replicas, at least 1")
    for number, replicas in assignments.items():
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"partition {number} names a broker twice")
        unknown = [node for node in replicas if node not in image.brokers]
        if unknown:
            raise InvalidReplicaAssignment(f"partition {number} names brokers that are not there: {unknown}")


def plan_grow(
    image: ClusterImage, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None, defaults: Defaults
) -> list[Op]:
    """The writes that give a topic more partitions, if one transaction can hold them."""
    return _whole(next_grow(image, topic, count, assignments, defaults))


def next_grow(
    image: ClusterImage,
    topic: Topic,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    defaults: Defaults,
    owner: str = "",
    plan: PartitionPlan | None = None,
) -> Step:
    """The next of the transactions that give a topic more partitions; see `next_create`."""
    plan = plan or plan_growth(image, topic, count, assignments, defaults)
    grown = Put(keys.topic(topic.topic_id), replace(topic, count=count).dump(), topic.version)
    return _next_step(image, plan, (grown,), owner)


def plan_growth(
    image: ClusterImage, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None, defaults: Defaults
) -> PartitionPlan:
    """The partitions that a topic lacks to have `count`. Raises what Kafka would answer."""
    have = len(topic.partitions)
    if count <= have:
        raise InvalidPartitions(f"topic {topic.name!r} has {have} partitions; a larger number is needed, got {count}")
    _check_count(count, defaults)
    factor = len(target_of(topic.partitions[0]))
    added: dict[int, Sequence[int]] = {}
    if assignments is None:
        check_factor(factor, len(open_brokers(image)))
    else:
        if len(assignments) != count - have:
            raise InvalidReplicaAssignment(
                f"{count - have} partitions are added, the assignment names {len(assignments)}"
            )
        added = {have + number: tuple(replicas) for number, replicas in enumerate(assignments)}
        _check_assignment(image, added, first=have)
        if any(len(replicas) != factor for replicas in added.values()):
            raise InvalidReplicaAssignment(f"topic {topic.name!r} has {factor} replicas a partition")
    # A coordinator's epoch is its partition's leader epoch. For a producer whose state moves to a new partition, it
    # must not go back: its markers would be refused as those of a coordinator that was replaced.
    epoch = max(state.leader_epoch for state in topic.partitions.values()) if topic.is_internal else 0
    return PartitionPlan(
        topic.topic_id,
        range(have, count),
        factor=factor,
        assignments=added,
        in_memory=topic.configs.get("storage") == "memory",
        leader_epoch=epoch,
        beside=lambda: [target_of(state) for state in topic.partitions.values()],
    )


def plan_configure(topic: Topic, configs: Mapping[str, str], companion: bytes = b"") -> list[Op]:
    """The write that gives a topic these settings and no others. Raises InvalidConfig.

    `companion`: the id of companion logs for delayed messages, should these settings be the first to ask for some.
    """
    check_configs(topic.name, topic.configs, configs)
    if delays_messages(topic.configs) and not delays_messages(configs):
        raise InvalidConfig(
            f"{DELAYED_MESSAGES} cannot be switched off: messages of topic {topic.name!r} may be waiting; make"
            " another topic"
        )
    if not delays_messages(configs) or delays_messages(topic.configs):
        return [_rewritten(topic, replace(topic, configs=configs))]
    if topic.companion:
        raise InvalidConfig(
            f"topic {topic.name!r} is, or was, worked off by a queue or a share group, which cannot go together with"
            f" {DELAYED_MESSAGES}=true; make another topic"
        )
    return [_rewritten(topic, replace(topic, configs=configs, companion=companion))]


def check_may_share(topic: Topic) -> None:
    """Raises PolicyViolation or InvalidTopic if queues and share groups cannot work a topic off."""
    check_mutable(topic.name, "keep delivery state for")
    if delays_messages(topic.configs):
        raise PolicyViolation(
            f"topic {topic.name!r} has {DELAYED_MESSAGES}=true: queues and share groups cannot work it off; read it"
            " with a consumer group, or delay messages of a queue by DelaySeconds"
        )


def plan_companion(topic: Topic, companion: bytes) -> list[Op]:
    """The write that gives a topic's partitions companion logs, or takes away those that they have."""
    if topic.companion == companion:
        return []
    return [_rewritten(topic, replace(topic, companion=companion))]


def _rewritten(topic: Topic, changed: Topic) -> Op:
    """A topic's own key, which says from now on how many partitions there are, if it did not."""
    count = len(topic.partitions) if topic.count == AS_MANY_AS_THERE_ARE else topic.count
    return Put(keys.topic(topic.topic_id), replace(changed, count=count).dump(), topic.version)


def plan_delete(topic: Topic, name_version: int, beside: Sequence[Op] = ()) -> list[Op]:
    """The writes that delete a topic, and what goes with it. Partitions that do not fit, the controller removes."""
    return [
        Delete(keys.topic_name(topic.name), name_version),
        Delete(keys.topic(topic.topic_id), topic.version),
        *beside,
        *(
            Delete(keys.partition(topic.topic_id, number), state.version)
            for number, state in islice(topic.partitions.items(), _PARTITIONS_AT_ONCE - len(beside))
        ),
    ]


def plan_leftovers(image: ClusterImage, topic_id: bytes, room: int) -> list[Op]:
    """The writes that remove what is left of a topic's partitions when nobody counts them, at most `room` of them."""
    waiting = image.waiting.get(topic_id)
    if waiting is None or topic_id in image.unfinished or room < 3:  # two conditions and a partition
        return []
    topic = waiting.topic or image.topics.get(topic_id)
    count = topic.count if topic is not None else 0
    numbers = [number for number in waiting.partitions if number >= count]
    if not numbers:
        return []
    return [
        Check(keys.topic(topic_id), topic.version if topic is not None else ABSENT),
        Check(keys.unfinished(topic_id), ABSENT),
        *(
            Delete(keys.partition(topic_id, number), waiting.partitions[number].version)
            for number in numbers[: room - 2]
        ),
    ]


def plan_reserve(image: ClusterImage, topic_id: bytes, number: int, beyond: int) -> list[Op]:
    """The write that lets a memory partition give offsets past `beyond`."""
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
