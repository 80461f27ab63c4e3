"""What handlers share that administer partitions: finding them by name, and how long somebody waits for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.broker.broker import Broker
from penstock.cluster.image import Place
from penstock.cluster.metadata import Metadata
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError, UnknownTopicOrPartition

T = TypeVar("T")


class RequestTimedOut(PenstockError):
    """It took longer than whoever asked would wait. It goes on."""

    code = ErrorCode.REQUEST_TIMED_OUT


def find_place(broker: Broker, topic: str, number: int) -> Place:
    """A partition by its topic's name. Raises Kafka's error where there is none."""
    found = broker.topic(topic)
    if number not in found.partitions:
        raise UnknownTopicOrPartition(
            f"topic {topic!r} has {len(found.partitions)} partitions, asked for partition {number}"
        )
    return Place(found.topic_id, number)


async def within(metadata: Metadata, timeout_ms: int, work: Coroutine[Any, Any, T]) -> T:
    """Do something that somebody waits for no longer than this. What has been begun is not broken off."""
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
            f"it was not done within {timeout_ms} ms, and goes on; look at the partitions before you try again"
        ) from None
