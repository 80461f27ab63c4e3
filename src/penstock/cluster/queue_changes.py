"""Queue changes: lookups, and the store writes that create, alter or delete a queue and its move tasks. Pure.

A queue is the share group of its name on one topic. CreateQueue writes the topic first, with `is_queue` set, then the
queue's key; if the broker dies in between, the next CreateQueue resumes. A queue whose topic was deleted counts as
deleted, even if its keys remain. Writes that create or change a queue fail if its topic was deleted.
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
"""Maximum number of queues on a topic, so that they can be deleted with the topic in one transaction."""


def find_queue(image: ClusterImage, name: str) -> Queue | None:
    """Returns a queue by its name, or None if the queue or its topic does not exist."""
    found = image.queues.get(name)
    return found if found is not None and found.topic_id in image.topics else None


def queue_of(image: ClusterImage, name: str) -> Queue:
    """Returns a queue by its name. Raises NoSuchQueue if the queue or its topic does not exist."""
    found = find_queue(image, name)
    if found is None:
        raise NoSuchQueue(f"there is no queue {name!r}; create it, or list the existing queues")
    return found


def queues_on(image: ClusterImage, topic_id: bytes) -> list[Queue]:
    """Returns all queues of a topic: the queue that it was created for, and queues attached later."""
    return [queue for queue in image.queues.values() if queue.topic_id == topic_id]


def sources_of(image: ClusterImage, name: str) -> list[Queue]:
    """Returns the queues that use the queue `name` as their dead-letter queue."""
    return [
        queue
        for queue in image.queues.values()
        if queue.settings.redrive is not None
        and queue.settings.redrive.queue == name
        and queue.topic_id in image.topics
    ]


def topic_for(image: ClusterImage, name: str) -> Topic | None:
    """Returns the topic created for a queue of this name, or None. Raises NameTaken if the topic has another use."""
    if name in INTERNAL_TOPICS:
        raise NameTaken(f"{name!r} is the name of an internal topic; use another name for the queue")
    topic = image.by_name.get(name)
    if topic is not None and not topic.is_queue:
        raise NameTaken(f"topic {name!r} exists; attach a queue to it, or use another name for the queue")
    return topic


def plan_queue(image: ClusterImage, queue: Queue) -> list[Op]:
    """Returns the writes that create a queue. Raises QueueExists, TooManyQueues; NoSuchQueue if its topic is gone."""
    topic = image.topics.get(queue.topic_id)
    if topic is None:
        raise NoSuchQueue(f"the topic of queue {queue.name!r} was deleted; retry")
    if find_queue(image, queue.name) is not None:
        raise QueueExists(f"queue {queue.name!r} exists already")
    check_partitions(topic, queue)
    if len(queues_on(image, queue.topic_id)) >= QUEUES_PER_TOPIC_MAX:
        raise TooManyQueues(f"topic {topic.name!r} has {QUEUES_PER_TOPIC_MAX} queues, the maximum; delete one first")
    key = keys.queue(queue.name)
    return [Check(keys.topic(topic.topic_id), topic.version), Put(key, queue.dump(), image.version(key))]


def plan_alter_queue(image: ClusterImage, before: Queue, after: Queue) -> list[Op]:
    """Returns the writes that change the settings or tags of a queue, and update its topic's settings to match."""
    if after == before:
        return []
    key, topic = keys.queue(before.name), image.topics[after.topic_id]
    check_partitions(topic, after)
    configs = [] if after.is_attached else plan_topic_configs(topic, after.settings)
    condition: list[Op] = configs or [Check(keys.topic(topic.topic_id), topic.version)]
    return [*condition, Put(key, after.dump(), image.version(key))]


def check_partitions(topic: Topic, queue: Queue) -> None:
    """Raises InvalidPartitions if a FIFO queue has queue-wide deduplication, but its topic has several partitions."""
    settings, count = queue.settings, len(topic.partitions)
    if settings.is_fifo and settings.deduplication_scope == SCOPE_QUEUE and count > 1:
        raise InvalidPartitions(
            f"queue {queue.name!r} has {count} partitions, and a DeduplicationScope of {SCOPE_QUEUE!r} needs one;"
            f" keep {SCOPE_GROUP!r}, or create another queue"
        )


def check_growth(image: ClusterImage, topic: Topic) -> None:
    """Raises InvalidPartitions if a FIFO queue uses the topic: message groups would change their partition."""
    for queue in queues_on(image, topic.topic_id):
        if queue.settings.is_fifo:
            raise InvalidPartitions(
                f"topic {topic.name!r} has the FIFO queue {queue.name!r}, whose message groups would move to other"
                " partitions; create another queue with more partitions"
            )


def plan_topic_configs(topic: Topic, settings: QueueSettings) -> list[Op]:
    """Returns the write that updates the settings of a queue's own topic from the queue settings."""
    configs = {**topic.configs, **settings.topic_configs()}
    return plan_configure(topic, configs) if configs != topic.configs else []


def plan_forget_queues(image: ClusterImage, queues: Sequence[Queue]) -> list[Op]:
    """Returns the writes that remove all store keys of these queues."""
    named = [make(queue.name) for queue in queues for make in (keys.queue, keys.queue_moves)]
    return [Delete(key, image.version(key)) for key in named if key in image.versions]


def moves_of(image: ClusterImage, queue: Queue) -> tuple[MoveTask, ...]:
    """Returns the message move tasks of a queue, newest first."""
    return tuple(task for task in image.queue_moves.get(queue.name, ()) if task.topic_id == queue.topic_id)


def plan_moves(image: ClusterImage, queue: Queue, task: MoveTask) -> list[Op]:
    """Returns the write that adds or updates a message move task of a queue."""
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
