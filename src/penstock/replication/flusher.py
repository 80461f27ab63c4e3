"""Fsync of logs: group commit for topics that fsync before they acknowledge, closed segments for other topics.

One fsync per partition runs at a time; each fsync covers all records appended before it began.
"""

import logging

from penstock.log.checkpoint import SyncTicket
from penstock.log.io_queue import Outcome, Work
from penstock.log.log import Log
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)


class Flusher:
    """Adds fsync jobs to the logs' I/O queues."""

    def __init__(self) -> None:
        self._queued: set[Log] = set()
        """Logs with a queued or running fsync."""

    def flush_soon(self, partition: Partition) -> None:
        """Queues an fsync of the partition's log; with `flush=group` the high watermark advances after the fsync."""
        if not partition.is_online:
            return  # flushed when it is online again
        log = partition.log
        if log not in self._queued:
            self._queued.add(log)
            tickets: list[SyncTicket] = []
            log.io.add(
                lambda: self._begin(partition, log, tickets),
                lambda outcome: self._end(partition, log, tickets, outcome),
            )

    def _begin(self, partition: Partition, log: Log, tickets: list[SyncTicket]) -> Work | None:
        if not partition.is_online:
            self._queued.discard(log)
            return None
        if not log.has_unsynced_segments and partition.is_durable:
            self._queued.discard(log)
            partition.mark_durable(partition.durable_end)  # another job of this log may have synced it
            return None
        tickets.append(log.begin_sync())
        return tickets[0].run

    def _end(self, partition: Partition, log: Log, tickets: list[SyncTicket], outcome: Outcome) -> None:
        self._queued.discard(log)
        if outcome.error is not None:
            if partition.is_online:  # else its topic was deleted meanwhile, and its files with it
                # After a failed fsync the content of the disk is unknown: nothing more may be acknowledged. The next
                # start recovers the log (FAILED_SYNC_FILE).
                logger.error("partition_offline partition=%s reason=%r", partition.name, str(outcome.error))
                partition.go_offline(f"fsync failed: {outcome.error}")
            return
        (ticket,) = tickets
        log.end_sync(ticket)
        if partition.is_online:
            partition.mark_durable(min(ticket.end_offset, log.end_offset))
            if log.has_unsynced_segments or not partition.is_durable:
                self.flush_soon(partition)
