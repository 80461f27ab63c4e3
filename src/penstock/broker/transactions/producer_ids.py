"""Assigns producer ids, reserved from the metadata store in blocks so that no id is ever assigned twice."""

import asyncio
from typing import Final

from penstock.cluster import keys
from penstock.cluster.metadata import Metadata

BLOCK: Final = 1000


class ProducerIds:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._next = self._end = 0
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        """Returns a new producer id; reserves another block in the metadata store when the current one is used up."""
        async with self._lock:
            if self._next == self._end:
                self._next = await self._metadata.reserve(keys.PRODUCER_IDS, BLOCK)
                self._end = self._next + BLOCK
            self._next += 1
            return self._next - 1
