"""Waits for partitions: until they match the metadata image, and until their logs are closed."""

import asyncio
import logging
from typing import Final

from penstock.cluster.image import ClusterImage
from penstock.log.io_queue import Outcome
from penstock.replication.partitions import Partitions

logger = logging.getLogger(__name__)

SETTLE_S: Final = 5.0
"""Seconds that CreateTopics waits until this broker has opened new partitions. After that, clients retry."""


async def wait_until_settled(partitions: Partitions) -> None:
    """Waits until all partitions match the metadata image."""
    await _wait_until_settled(partitions, None)


async def open_logs(partitions: Partitions, image: ClusterImage) -> None:
    """Opens the logs of this broker at startup, and removes the logs of partitions deleted or moved elsewhere."""
    partitions.apply(image)
    await wait_until_settled(partitions)
    if not any(known.topic for known in image.incomplete.values()):  # an incomplete topic must not lose its logs
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        partitions.remove_strays(image, future.set_result)
        (await future).result()


async def wait_until_topic_settled(partitions: Partitions, topic_id: bytes, timeout_s: float = SETTLE_S) -> None:
    """Waits until the partitions of a topic match the metadata image, for at most `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            await _wait_until_settled(partitions, topic_id)
    except TimeoutError:
        logger.info("partitions_not_open_yet waited_s=%g", timeout_s)


async def _wait_until_settled(partitions: Partitions, topic_id: bytes | None) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    partitions.when_settled(topic_id, lambda: None if future.done() else future.set_result(None))
    await future


async def close_logs(partitions: Partitions) -> bool:
    """Syncs and closes all logs. Returns False if some log could not be closed."""
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    partitions.close(future.set_result)
    return await future
