"""Deciding on queues: which there are, and what must be written to the store to make, change or delete one. Pure.

A queue is the share group of its name on one topic. Its own topic is made first and says that it is a queue's, then
the queue's key: whoever died in between is repeated by whoever asks for the queue again. A queue whose topic is gone
is none, whatever is left of it. Every write is on the condition of the topic, whose key is never made again.
"""

from collections.abc import Sequence
from typing import Final

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.queues import (
    SCOPE_GROUP,
    SCOPE_QUEUE,
    MoveTask,
    NameTaken,
    NoSuchQueue,
    Queue,
    QueueExists,
    QueueSettings,
    TooManyQueues,
)
from penstock.cluster.topic_changes import plan_configure
from penstock.coordination.store import Check, Delete, Op, Put
from penstock.foundation.errors import InvalidPartitions
from penstock.foundation.ids import INTERNAL_TOPICS

MOVES_KEPT: Final = 10
QUEUES_PER_TOPIC_MAX: Final = 32
"""They are deleted with their topic, in one transaction."""


def find_queue(image: ClusterImage, name: str) -> Queue | None:
    """A queue by its name, if it and its topic are there."""
    found = image.queues.get(name)
    return found if found is not None and found.topic_id in image.topics else None


def queue_of(image: ClusterImage, name: str) -> Queue:
    """As `find_queue`; raises NoSuchQueue."""
    found = find_queue(image, name)
    if found is None:
        raise NoSuchQueue(f"there is no queue {name!r}; create it, or list queues to see what is there")
    return found


def queues_on(image: ClusterImage, topic_id: bytes) -> list[Queue]:
    """All queues of a topic: its own, and those that are attached to it."""
    return [queue for queue in image.queues.values() if queue.topic_id == topic_id]


def sources_of(image: ClusterImage, name: str) -> list[Queue]:
    """The queues whose dead letters come to this one."""
    return [
        queue
        for queue in image.queues.values()
        if queue.settings.redrive is not None
        and queue.settings.redrive.queue == name
        and queue.topic_id in image.topics
    ]


def topic_for(image: ClusterImage, name: str) -> Topic | None:
    """The topic that was made for a queue of this name, if it is there. Raises NameTaken if it is somebody else's."""
    if name in INTERNAL_TOPICS:
        raise NameTaken(f"{name!r} is the name of an internal topic; give the queue another name")
    topic = image.by_name.get(name)
    if topic is not None and not topic.is_queue:
        raise NameTaken(f"there is a topic {name!r}; attach a queue to it, or give the queue another name")
    return topic


def plan_queue(image: ClusterImage, queue: Queue) -> list[Op]:
    """The writes that make a queue on a topic that is there. Raises QueueExists if somebody was faster."""
    topic = image.topics.get(queue.topic_id)
    if topic is None:
        raise NoSuchQueue(f"the topic of queue {queue.name!r} was deleted; try again")
    if find_queue(image, queue.name) is not None:
        raise QueueExists(f"queue {queue.name!r} exists already")
    check_partitions(topic, queue)
    if len(queues_on(image, queue.topic_id)) >= QUEUES_PER_TOPIC_MAX:
        raise TooManyQueues(f"topic {topic.name!r} has {QUEUES_PER_TOPIC_MAX} queues, no more can be attached")
    key = keys.queue(queue.name)
    return [Check(keys.topic(topic.topic_id), topic.version), Put(key, queue.dump(), image.version(key))]


def plan_alter_queue(image: ClusterImage, before: Queue, after: Queue) -> list[Op]:
    """The writes that give a queue other settings or tags, and its own topic what follows from them."""
    if after == before:
        return []
    key, topic = keys.queue(before.name), image.topics[after.topic_id]
    check_partitions(topic, after)
    configs = [] if after.is_attached else plan_topic_configs(topic, after.settings)
    condition: list[Op] = configs or [Check(keys.topic(topic.topic_id), topic.version)]
    return [*condition, Put(key, after.dump(), image.version(key))]


def check_partitions(topic: Topic, queue: Queue) -> None:
    """Duplicates of a whole queue can be told by one leader only. Raises InvalidPartitions."""
    settings, count = queue.settings, len(topic.partitions)
    if settings.is_fifo and settings.deduplication_scope == SCOPE_QUEUE and count > 1:
        raise InvalidPartitions(
            f"queue {queue.name!r} has {count} partitions, and a DeduplicationScope of {SCOPE_QUEUE!r} needs one;"
            f" leave it at {SCOPE_GROUP!r}, or make another queue"
        )


def check_growth(image: ClusterImage, topic: Topic) -> None:
    """More partitions would part a FIFO queue's message groups, and its duplicates. Raises InvalidPartitions."""
    for queue in queues_on(image, topic.topic_id):
        if queue.settings.is_fifo:
            raise InvalidPartitions(
                f"topic {topic.name!r} has the FIFO queue {queue.name!r}, whose message groups would be on other"
                " partitions than before; make another queue with as many partitions as it needs"
            )


def plan_topic_configs(topic: Topic, settings: QueueSettings) -> list[Op]:
    """The write that gives a queue's own topic the settings that follow from the queue's."""
    configs = {**topic.configs, **settings.topic_configs()}
    return plan_configure(topic, configs) if configs != topic.configs else []


def plan_forget_queues(image: ClusterImage, queues: Sequence[Queue]) -> list[Op]:
    """The writes that leave nothing of queues in the store."""
    named = [make(queue.name) for queue in queues for make in (keys.queue, keys.queue_moves)]
    return [Delete(key, image.version(key)) for key in named if key in image.versions]


def moves_of(image: ClusterImage, queue: Queue) -> tuple[MoveTask, ...]:
    """The tasks that move or have moved a queue's messages, the newest first."""
    return tuple(task for task in image.queue_moves.get(queue.name, ()) if task.topic_id == queue.topic_id)


def plan_moves(image: ClusterImage, queue: Queue, task: MoveTask) -> list[Op]:
    """The write that adds a task to those of a queue, or says how one of them is now."""
    known = moves_of(image, queue)
    if task.handle in {each.handle for each in known}:
        tasks = tuple(task if each.handle == task.handle else each for each in known)
    else:
        tasks = (task, *known)[:MOVES_KEPT]
    if tasks == known:
        return []
    key, topic = keys.queue_moves(queue.name), image.topics[queue.topic_id]
    value = keys.encode([each.dump() for each in tasks])
    return [Check(keys.topic(topic.topic_id), topic.version), Put(key, value, image.version(key))]
