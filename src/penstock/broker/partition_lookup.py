"""Partition lookup by topic name, and request timeouts, for handlers that change partitions."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.broker.broker import Broker
from penstock.cluster.metadata import Metadata
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError, UnknownTopicOrPartition
from penstock.foundation.ids import TopicIdPartition

T = TypeVar("T")


class RequestTimedOut(PenstockError):
    """The operation took longer than the request's timeout; it continues in the background."""

    code = ErrorCode.REQUEST_TIMED_OUT


def find_partition(broker: Broker, topic: str, number: int) -> TopicIdPartition:
    """Returns a partition by its topic's name. Raises UnknownTopicOrPartition if it does not exist."""
    found = broker.topic(topic)
    if number not in found.partitions:
        raise UnknownTopicOrPartition(
            f"topic {topic!r} has {len(found.partitions)} partitions, asked for partition {number}"
        )
    return TopicIdPartition(found.topic_id, number)


async def run_with_timeout(metadata: Metadata, timeout_ms: int, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`. Raises RequestTimedOut after the timeout; `work` continues in the background."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def finish() -> None:
        try:
            result = await work
        except PenstockError as error:
            if not outcome.done():
                outcome.set_exception(error)
        else:
            if not outcome.done():
                outcome.set_result(result)

    metadata.spawn(finish())
    try:
        async with asyncio.timeout(max(0, timeout_ms) / 1000):
            return await outcome
    except TimeoutError:
        raise RequestTimedOut(
            f"not finished within {timeout_ms} ms, and still in progress; check the partitions before you try again"
        ) from None
