"""Topics made, grown and deleted: the plans of topics.py put to work."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.metadata import Metadata
from penstock.cluster.topics import Defaults, NewTopic, Step, next_create, next_grow, plan_abandon, plan_delete
from penstock.coordination.store import Op, StoreUnavailable
from penstock.foundation.errors import UnknownTopicId
from penstock.foundation.ids import uuid_text

RETRY_S: Final = 1.0


async def create_topic(metadata: Metadata, wanted: NewTopic, topic_id: bytes, defaults: Defaults) -> None:
    """Make a topic of any size. Raises what Kafka would answer."""
    owner = secrets.token_hex(8)
    await _work_off(metadata, topic_id, owner, lambda image: next_create(image, wanted, topic_id, defaults, owner))


async def grow_topic(
    metadata: Metadata,
    topic_id: bytes,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    defaults: Defaults,
) -> None:
    """Give a topic more partitions, however many."""
    owner = secrets.token_hex(8)

    def next_step(image: ClusterImage) -> Step:
        return next_grow(image, _found(image, topic_id), count, assignments, defaults, owner)

    await _work_off(metadata, topic_id, owner, next_step)


async def delete_topic(metadata: Metadata, topic_id: bytes) -> None:
    """Delete a topic: it is gone when this returns. The rest of its keys, if it is large, goes soon after."""

    def plan(image: ClusterImage) -> list[Op]:
        topic = _found(image, topic_id)
        return plan_delete(topic, image.versions[keys.topic_name(topic.name)])

    await metadata.change(plan)


def _found(image: ClusterImage, topic_id: bytes) -> Topic:
    found = image.topics.get(topic_id)
    if found is None:
        raise UnknownTopicId(f"no topic has the id {uuid_text(topic_id)}")
    return found


async def _work_off(
    metadata: Metadata, topic_id: bytes, owner: str, next_step: Callable[[ClusterImage], Step]
) -> None:
    done = False
    try:
        await metadata.work_off(next_step)
        done = True
    finally:
        if not done:
            metadata.spawn(_abandon(metadata, topic_id, owner))


async def _abandon(metadata: Metadata, topic_id: bytes, owner: str) -> None:
    """Leave what was made to the controller, as soon as the store can be reached."""
    while True:
        try:
            await metadata.change(lambda image: plan_abandon(image, topic_id, owner))
        except StoreUnavailable:
            await asyncio.sleep(RETRY_S)
        else:
            return
