"""Every fsync of a log: group commit where the topic wants it, closed segments where it does not.

One at a time a partition, each for all that was appended before it began.
"""

import asyncio
import logging
from concurrent.futures import Executor

from penstock.foundation.errors import StorageError
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)


class Flusher:
    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._running: dict[Partition, asyncio.Task[None]] = {}

    def flush_soon(self, partition: Partition) -> None:
        """Sync what the partition holds; with `flush=group` its high watermark advances when that is done."""
        if partition not in self._running:
            self._running[partition] = asyncio.get_running_loop().create_task(self._flush(partition))

    async def _flush(self, partition: Partition) -> None:
        loop = asyncio.get_running_loop()
        try:
            while partition.is_online:
                log = partition.log
                if not log.has_unsynced_segments and partition.is_kept:
                    break
                ticket = log.begin_sync()
                await loop.run_in_executor(self._threads, ticket.run)
                log.end_sync(ticket)
                partition.keep(min(ticket.end_offset, log.end_offset))
        except StorageError as error:
            if partition.is_online:  # else its topic was deleted meanwhile, and its files with it
                # After a failed fsync nobody knows what the disk has: no answer may be given on top of it.
                logger.error("partition_offline partition=%s reason=%r", partition.name, str(error))
                partition.go_offline(f"a flush failed: {error}")
        finally:
            del self._running[partition]

    async def settle(self, partition: Partition) -> None:
        """Return when no sync of the partition is under way."""
        while partition in self._running:
            await asyncio.wait([self._running[partition]])

    async def close(self) -> None:
        await asyncio.gather(*self._running.values())
