"""Admin operations on the cluster: topics, views (filtered virtual topics), reassignments, leader elections.

Any broker can execute these operations: every change is a compare-and-set on the metadata that it was based on.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar

from penstock.cluster import keys
from penstock.cluster.elections import Election, plan_elect
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.internal_topics import check_mutable
from penstock.cluster.metadata import Metadata
from penstock.cluster.queue_changes import check_growth, plan_forget_queues, queues_on
from penstock.cluster.reassignment import plan_cancel, plan_reassign
from penstock.cluster.topic_changes import (
    OPERATIONS_MAX,
    Defaults,
    NewTopic,
    PartitionPlan,
    Step,
    check_may_share,
    check_new_name,
    next_create,
    next_grow,
    plan_abandon,
    plan_companion,
    plan_delete,
    plan_growth,
    plan_partitions,
)
from penstock.cluster.view_changes import plan_drop, plan_view, views_on
from penstock.cluster.views import View
from penstock.coordination.store import Op, StoreUnavailable
from penstock.foundation.errors import PenstockError, UnknownTopicId
from penstock.foundation.ids import TopicIdPartition, uuid_text
from penstock.log.settings import delays_messages

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
COMPANIONS_AT_ONCE: Final = 16
"""Maximum number of topics to which one transaction adds companion logs (internal logs with queue or delay state)."""

T = TypeVar("T", bound=Hashable)


async def create_topic(metadata: Metadata, wanted: NewTopic, topic_id: bytes, defaults: Defaults) -> None:
    """Creates a topic, in several store transactions if it is large, and waits until this broker has opened its
    replicas. Raises the errors of Kafka's CreateTopics, such as TopicExists."""
    owner = secrets.token_hex(8)
    if delays_messages(wanted.configs) and not wanted.companion:
        wanted = replace(wanted, companion=secrets.token_bytes(16))
    plan: PartitionPlan | None = None

    def next_step(image: ClusterImage) -> Step:
        nonlocal plan
        check_new_name(image, wanted)
        plan = plan or plan_partitions(image, wanted, topic_id, defaults)
        return next_create(image, wanted, topic_id, defaults, owner, plan)

    await _execute_steps(metadata, topic_id, owner, next_step)
    count = 0 if plan is None else len(plan.numbers)
    logger.info("topic_created topic=%r topic_id=%s partitions=%d", wanted.name, uuid_text(topic_id), count)
    await metadata.wait_settled(topic_id)


async def grow_topic(
    metadata: Metadata,
    topic_id: bytes,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    defaults: Defaults,
    *,
    may_be_internal: bool = False,
) -> None:
    """Adds partitions up to a total of `count`, in as many transactions as needed. Raises InvalidPartitions for
    the topic of a FIFO queue, and InvalidTopic for an internal topic unless `may_be_internal`."""
    owner = secrets.token_hex(8)
    plan: PartitionPlan | None = None

    def next_step(image: ClusterImage) -> Step:
        nonlocal plan
        topic = _find_topic(image, topic_id)
        check_growth(image, topic)
        if not may_be_internal:
            check_mutable(topic.name, topic.configs, "add partitions to")
        if plan is None or plan.numbers.start != len(topic.partitions):  # another request has added some
            plan = plan_growth(image, topic, count, assignments, defaults)
        return next_grow(image, topic, count, assignments, defaults, owner, plan)

    await _execute_steps(metadata, topic_id, owner, next_step)
    logger.info("partitions_added topic_id=%s partitions=%d", uuid_text(topic_id), count)
    await metadata.wait_settled(topic_id)


async def delete_topic(metadata: Metadata, topic_id: bytes) -> None:
    """Deletes a topic, its queues and views. If it has many partitions, the controller deletes some of them later."""

    topic = _find_topic(metadata.image, topic_id)

    def plan(image: ClusterImage) -> list[Op]:
        nonlocal topic
        topic = _find_topic(image, topic_id)
        check_mutable(topic.name, topic.configs, "delete")
        queues = plan_forget_queues(image, queues_on(image, topic_id))
        return plan_delete(topic, image.versions[keys.topic_name(topic.name)], queues)

    await metadata.change(plan)
    logger.info("topic_deleted topic=%r topic_id=%s", topic.name, uuid_text(topic_id))
    for view in views_on(metadata.image, topic_id):  # if this stops halfway, any broker removes the rest
        await drop_view(metadata, view, "topic_deleted")


async def create_view(metadata: Metadata, view: View) -> None:
    """Creates a view (a filtered, read-only topic) of the topic named by `view.of`. Raises Kafka's errors."""
    await metadata.change(lambda image: plan_view(image, view))
    logger.info("view_created view=%r topic=%r where=%r", view.name, view.of, view.where)


async def drop_view(metadata: Metadata, view: View, reason: str) -> None:
    """Drops a view (a filtered, read-only topic); does nothing if the view does not exist."""
    await metadata.change(lambda image: plan_drop(image, view.view_id))
    logger.info("view_dropped view=%r topic=%r reason=%s", view.name, view.of, reason)


async def add_companion(metadata: Metadata, topic_id: bytes) -> bytes:
    """Adds companion logs to a topic unless it has them: internal logs, one for each partition, with the state of
    queues or delayed messages. Returns their common id."""
    await metadata.change(lambda image: _plan_new_companion(image, topic_id))
    await metadata.wait_settled(topic_id)
    return _find_topic(metadata.image, topic_id).companion


async def add_companions(metadata: Metadata, topic_ids: Iterable[bytes]) -> dict[bytes, PenstockError]:
    """Adds companion logs (internal logs with queue or delay state) to topics. Returns errors by topic id."""
    results = await _change_each(metadata, topic_ids, _plan_new_companion, COMPANIONS_AT_ONCE)
    return {topic_id: error for topic_id, error in results.items() if error is not None}


def _plan_new_companion(image: ClusterImage, topic_id: bytes) -> list[Op]:
    topic = _find_topic(image, topic_id)
    check_may_share(topic)
    return [] if topic.companion else plan_companion(topic, secrets.token_bytes(16))


async def reassign(
    metadata: Metadata,
    wanted: Mapping[TopicIdPartition, Sequence[int] | None],
    *,
    is_unclean: Callable[[Topic], bool],
    may_resize: bool = True,
) -> dict[TopicIdPartition, PenstockError | None]:
    """Starts a reassignment for each partition in `wanted`, to these replicas; None cancels its reassignment. Returns
    an error or None for each partition. `is_unclean`: whether a topic allows unclean leader election. `may_resize`:
    whether the number of replicas may change."""

    def plan(image: ClusterImage, tp: TopicIdPartition) -> list[Op]:
        topic, replicas = image.topics.get(tp.topic_id), wanted[tp]
        unclean = topic is not None and is_unclean(topic)
        if replicas is None:
            return plan_cancel(image, tp, unclean=unclean)
        return plan_reassign(image, tp, replicas, unclean=unclean, may_resize=may_resize)

    return await _change_each(metadata, wanted, plan)


async def elect_leaders(
    metadata: Metadata, tps: Iterable[TopicIdPartition], election: Election
) -> dict[TopicIdPartition, PenstockError | None]:
    """Elects leaders of these partitions. Returns an error or None by partition."""
    return await _change_each(metadata, tps, lambda image, tp: plan_elect(image, tp, election))


async def _change_each(
    metadata: Metadata,
    things: Iterable[T],
    plan_one: Callable[[ClusterImage, T], list[Op]],
    at_once: int = OPERATIONS_MAX,
) -> dict[T, PenstockError | None]:
    """Executes the store operations that `plan_one` returns for each item of `things`, `at_once` items per
    transaction. Returns an error or None for each item."""
    results: dict[T, PenstockError | None] = {}
    left = iter(dict.fromkeys(things))
    while batch := tuple(islice(left, at_once)):

        def plan(image: ClusterImage, batch: tuple[T, ...] = batch) -> list[Op]:
            ops: list[Op] = []
            for thing in batch:
                results[thing] = None
                try:
                    ops += plan_one(image, thing)
                except PenstockError as error:
                    results[thing] = error
            return ops

        await metadata.change(plan)
        await asyncio.sleep(0)  # a change without operations does not yield to the event loop
    return results


def _find_topic(image: ClusterImage, topic_id: bytes) -> Topic:
    found = image.topics.get(topic_id)
    if found is None:
        raise UnknownTopicId(f"topic id {uuid_text(topic_id)} does not exist")
    return found


async def _execute_steps(
    metadata: Metadata, topic_id: bytes, owner: str, next_step: Callable[[ClusterImage], Step]
) -> None:
    done = False
    try:
        await metadata.execute_steps(next_step)
        done = True
    finally:
        if not done:
            metadata.spawn(_abandon(metadata, topic_id, owner))


async def _abandon(metadata: Metadata, topic_id: bytes, owner: str) -> None:
    """Deletes the key that marks an unfinished topic creation or growth, so that the controller removes the new
    partitions. Does nothing if another request than `owner` wrote the key. Retries while the store is unavailable."""
    while True:
        try:
            await metadata.change(lambda image: plan_abandon(image, topic_id, owner))
        except StoreUnavailable:
            await asyncio.sleep(RETRY_S)
        else:
            return
