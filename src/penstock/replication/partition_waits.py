"""Waiting for partitions: until they are as the image says, and until their logs are closed."""

import asyncio
import logging
from typing import Final

from penstock.cluster.image import ClusterImage
from penstock.log.io_queue import Outcome
from penstock.replication.partitions import Partitions

logger = logging.getLogger(__name__)

SETTLE_S: Final = 5.0
"""How long CreateTopics waits for this broker to open the new partitions. Clients retry on those that are not."""


async def settled(partitions: Partitions) -> None:
    """Return when all partitions are as the image says."""
    await _until_settled(partitions, None)


async def open_logs(partitions: Partitions, image: ClusterImage) -> None:
    """Open what a broker that starts has, and remove what it has no more."""
    partitions.apply(image)
    await settled(partitions)
    if not any(waiting.topic for waiting in image.waiting.values()):  # what is seen in part is not gone
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        partitions.remove_strays(image, future.set_result)
        (await future).result()


async def topic_settled(partitions: Partitions, topic_id: bytes, patience_s: float = SETTLE_S) -> None:
    """Return when a topic's partitions are as the image says, or when that takes too long."""
    try:
        async with asyncio.timeout(patience_s):
            await _until_settled(partitions, topic_id)
    except TimeoutError:
        logger.info("partitions_not_open_yet waited_s=%g", patience_s)


async def _until_settled(partitions: Partitions, topic_id: bytes | None) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    partitions.when_settled(topic_id, lambda: None if future.done() else future.set_result(None))
    await future


async def closed(partitions: Partitions) -> bool:
    """Sync and close every log; whether all could be."""
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    partitions.close(future.set_result)
    return await future
