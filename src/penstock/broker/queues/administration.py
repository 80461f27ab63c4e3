"""Making, changing and deleting queues: any broker can, by compare-and-set in the store."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from penstock.cluster.administration import add_companion, create_topic, delete_topic
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.metadata import Metadata
from penstock.cluster.queue_changes import (
    find_queue,
    plan_alter_queue,
    plan_forget_queues,
    plan_queue,
    plan_topic_configs,
    queue_of,
    topic_for,
)
from penstock.cluster.queues import Queue, QueueExists, QueueSettings
from penstock.cluster.topic_changes import Defaults, NewTopic, check_may_share
from penstock.coordination.store import Op
from penstock.foundation.clock import Clock
from penstock.foundation.errors import TopicExists, UnknownTopicId, UnknownTopicOrPartition


class QueueAdministration:
    """Changes what the store knows of queues. What leaders must do then is the service's."""

    def __init__(self, *, metadata: Metadata, clock: Clock, defaults: Callable[[], Defaults]) -> None:
        self._metadata = metadata
        self._clock = clock
        self._defaults = defaults

    async def create(
        self,
        name: str,
        settings: QueueSettings,
        tags: Mapping[str, str],
        owner: str,
        topic: str | None = None,
    ) -> Queue:
        """Make a queue, on a topic of its own or on one that is there. Raises QueueExists, NameTaken.

        Whoever died halfway has left a topic that says it is this queue's: it is taken, and all is well.
        """
        if find_queue(self._metadata.image, name) is not None:
            raise QueueExists(f"queue {name!r} exists already")
        found = await self._own_topic(name, settings) if topic is None else self._topic(topic)
        check_may_share(found)
        if not found.companion:
            await add_companion(self._metadata, found.topic_id)
        now_ms = self._clock.now_ms()
        queue = Queue(
            name=name,
            topic_id=found.topic_id,
            owner=owner,
            created_ms=now_ms,
            modified_ms=now_ms,
            is_attached=topic is not None,
            settings=settings,
            tags=tags,
        )
        await self._metadata.change(_until_there(queue))
        return queue

    async def _own_topic(self, name: str, settings: QueueSettings) -> Topic:
        """The topic of a queue that is made, with the settings that follow from its own."""
        while (topic := topic_for(self._metadata.image, name)) is None:
            wanted = NewTopic(
                name=name,
                partitions=settings.topic_partitions(len(self._metadata.image.brokers)),
                configs=settings.topic_configs(),
                companion=secrets.token_bytes(16),
                is_queue=True,
            )
            try:
                await create_topic(self._metadata, wanted, secrets.token_bytes(16), self._defaults())
            except TopicExists:
                continue  # somebody else makes the same queue
        topic_id = topic.topic_id
        await self._metadata.change(lambda image: plan_topic_configs(_of(image, topic_id), settings))
        return _of(self._metadata.image, topic_id)

    def _topic(self, name: str) -> Topic:
        found = self._metadata.image.by_name.get(name)
        if found is None or found.is_internal:
            raise UnknownTopicOrPartition(f"there is no topic {name!r} that a queue can be attached to")
        return found

    async def alter(self, name: str, change: Callable[[Queue], Queue]) -> Queue:
        """Give a queue other settings or tags. Raises NoSuchQueue."""

        def plan(image: ClusterImage) -> Sequence[Op]:
            before = queue_of(image, name)
            after = change(before)
            if after != before:
                after = replace(after, modified_ms=self._clock.now_ms())
            return plan_alter_queue(image, before, after)

        await self._metadata.change(plan)
        return queue_of(self._metadata.image, name)

    async def delete(self, queue: Queue) -> None:
        """Delete this queue, and its topic if that is its own; all other queues on it go too.

        Not by its name, which another one may have by now.
        """
        if queue.is_attached:
            await self._metadata.change(_without(queue))
            return
        with suppress(UnknownTopicId):  # somebody was faster
            await delete_topic(self._metadata, queue.topic_id)


def _until_there(queue: Queue) -> Callable[[ClusterImage], Sequence[Op]]:
    return lambda image: [] if image.queues.get(queue.name) == queue else plan_queue(image, queue)


def _without(queue: Queue) -> Callable[[ClusterImage], Sequence[Op]]:
    """Only if it is this one still: another of its name may have been made."""

    def plan(image: ClusterImage) -> Sequence[Op]:
        return plan_forget_queues(image, [queue]) if queue.is_same(image.queues.get(queue.name)) else []

    return plan


def _of(image: ClusterImage, topic_id: bytes) -> Topic:
    found = image.topics.get(topic_id)
    if found is None:
        raise UnknownTopicId("the topic was deleted meanwhile; try again")
    return found
