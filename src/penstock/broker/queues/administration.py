"""Creates, alters and deletes SQS queues by compare-and-set in the metadata store; any broker can do it."""

import logging
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

logger = logging.getLogger(__name__)


class QueueAdministration:
    """Changes queues in the metadata store. QueueService applies the change later at the partition leaders."""

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
        """Creates a queue, on its own new topic or attached to an existing topic. Raises QueueExists, NameTaken.

        If an interrupted creation of this queue has left its topic behind, that topic is used.
        """
        if find_queue(self._metadata.image, name) is not None:
            raise QueueExists(f"queue {name!r} exists already")
        found = await self._ensure_topic(name, settings) if topic is None else self._find_topic(topic)
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
        await self._metadata.change(_plan_create(queue))
        logger.info("queue_created queue=%r topic=%r owner=%s", name, found.name, owner)
        return queue

    async def _ensure_topic(self, name: str, settings: QueueSettings) -> Topic:
        """Returns the queue's own topic; creates it if missing, with configs derived from the queue's settings."""
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
                continue  # another client creates the same queue
        topic_id = topic.topic_id
        await self._metadata.change(lambda image: plan_topic_configs(_topic_of(image, topic_id), settings))
        return _topic_of(self._metadata.image, topic_id)

    def _find_topic(self, name: str) -> Topic:
        found = self._metadata.image.by_name.get(name)
        if found is None or found.is_internal:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist, or is internal")
        return found

    async def alter(self, name: str, change: Callable[[Queue], Queue]) -> Queue:
        """Changes the settings or tags of a queue; returns the changed queue. Raises NoSuchQueue."""

        def plan(image: ClusterImage) -> Sequence[Op]:
            before = queue_of(image, name)
            after = change(before)
            if after != before:
                after = replace(after, modified_ms=self._clock.now_ms())
            return plan_alter_queue(image, before, after)

        await self._metadata.change(plan)
        return queue_of(self._metadata.image, name)

    async def delete(self, queue: Queue) -> None:
        """Deletes a queue. If the queue has its own topic, also deletes that topic and all queues attached to it.

        Takes a Queue, not a name: the name may have been reused for another queue.
        """
        if queue.is_attached:
            await self._metadata.change(_plan_delete(queue))
        else:
            with suppress(UnknownTopicId):  # deleted concurrently
                await delete_topic(self._metadata, queue.topic_id)
        logger.info("queue_deleted queue=%r", queue.name)


def _plan_create(queue: Queue) -> Callable[[ClusterImage], Sequence[Op]]:
    return lambda image: [] if image.queues.get(queue.name) == queue else plan_queue(image, queue)


def _plan_delete(queue: Queue) -> Callable[[ClusterImage], Sequence[Op]]:
    """Returns a function that plans the deletion of this queue: no operations if another queue has its name now."""

    def plan(image: ClusterImage) -> Sequence[Op]:
        return plan_forget_queues(image, [queue]) if queue.is_same(image.queues.get(queue.name)) else []

    return plan


def _topic_of(image: ClusterImage, topic_id: bytes) -> Topic:
    found = image.topics.get(topic_id)
    if found is None:
        raise UnknownTopicId("the topic was deleted meanwhile; try again")
    return found
