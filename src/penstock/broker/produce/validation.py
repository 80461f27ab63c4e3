"""Validation of produced batches that must be decompressed, on a thread if they are large (see log/admission.py)."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.produce.produced_batch import ProducedBatch
from penstock.foundation.errors import PenstockError
from penstock.log.admission import TooLargeForEventLoop, admit, must_decompress

DECOMPRESS_INLINE_BYTES_MAX: Final = 64 << 10
"""Maximum decompressed size, in bytes, of batches validated on the event loop; larger batches use a thread."""


def find_compressed(batches: Iterable[ProducedBatch], broker: Broker) -> list[ProducedBatch]:
    """Returns the batches that must be decompressed before they are appended."""
    if not broker.partitions.decompresses_batches:
        return []
    return [
        batch
        for batch in batches
        if batch.result is None
        and batch.partition.is_online
        and must_decompress(batch.records, batch.partition.log.settings)
    ]


async def validate(batches: Iterable[ProducedBatch], broker: Broker) -> None:
    """Sets an error result for invalid batches. Recompresses batches if the topic's compression.type differs."""
    loop = asyncio.get_running_loop()
    for batch in batches:
        partition = batch.partition
        try:
            may_delay = partition.visibility is not None and partition.visibility.may_delay
            work = partial(admit, batch.records, partition.log.settings, broker.clock.now_ms(), may_delay)
            try:
                batch.records = work(body_max=DECOMPRESS_INLINE_BYTES_MAX)
            except TooLargeForEventLoop:
                batch.records = await loop.run_in_executor(broker.threads, work)
        except PenstockError as error:
            batch.refuse(error)
