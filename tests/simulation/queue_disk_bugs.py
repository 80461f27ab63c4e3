"""Bugs that are planted to show that the disk simulation of queues finds them."""

from collections.abc import Callable, Collection
from typing import Any

from penstock.broker.queues import reclamation
from penstock.broker.queues.message_reader import Message, MessageLookup
from penstock.broker.queues.partition import QueuePartition
from penstock.foundation.decision import Decision
from penstock.foundation.errors import OffsetNotAvailable
from penstock.log.checkpoint import HolesMarker
from penstock.log.io_queue import IoQueue, Outcome, ignore_outcome
from penstock.log.log import Log
from penstock.queues.commands import Purge
from penstock.queues.records import purge_record
from penstock.replication.partition import Partition
from tests.simulation.queue_disk_node import QueueDiskNode
from tests.simulation.threads import FakeThreads

BUGS = {
    "drops segments during a sync": ("PartitionOnline", 8),
    "does not sync the note of missing offsets": ("PartitionOnline", 8),
    "acknowledges before the sync": ("NoMessageLost", 8),
    "drops segments with messages in flight": ("NoMessageLost", 8),
    "answers deletions before the sync": ("AckedMessageNeverRedelivered", 8),
    "takes what it cannot read yet for removed": ("NoMessageLost", 36),
    "does not persist purges": ("PurgeForgetsIds", 8),
    "persists a purge before what it purges": ("TakenOnce", 8),
}
"""What is planted, the invariant that must catch it, and a seed from which on that does not take long."""


class _NeverBusy(IoQueue):
    """A queue that claims to have no jobs."""

    __slots__ = ()
    is_busy = property(lambda self: False)  # type: ignore[assignment]


def plant_bug(bug: str, node: QueueDiskNode, threads: FakeThreads) -> None:
    log = node.partition.log
    if bug == "drops segments during a sync":
        # As before commit 648bc73: dropped on the event loop, regardless of threads. A sync that began earlier
        # then overwrites the mark that says that offsets are missing.
        log.io = _NeverBusy(threads.run)
        log.drop_segments = lambda *args: _drop_at_once(log, *args)  # type: ignore[method-assign]
    elif bug == "does not sync the note of missing offsets":
        log._holes_marker = lambda: HolesMarker(  # type: ignore[method-assign]
            log.disk, log.folder, log.checkpoint_file, log.checkpoint, is_unsynced=False
        )
        log._are_holes_synced = True
    elif bug == "acknowledges before the sync":
        _commit_unsynced(node, node.partition)
    elif bug == "answers deletions before the sync":
        _commit_unsynced(node, node.companion)
    elif bug == "drops segments with messages in flight":
        node.reclaimer._drop_finished = lambda topic, partition, machine: _drop_looked_at(  # type: ignore[method-assign]
            partition, machine.group("jobs").end
        )
    elif bug == "takes what it cannot read yet for removed":
        queue_partitions = node.queue_partitions
        queue_partitions._on_ready = lambda place, runtime: queue_partitions._open(place, runtime, 0)  # type: ignore[method-assign]
        queue_partitions.on_ready.append(_forget_errors)

    elif bug == "does not persist purges":
        node.queue_partitions.on_ready.append(lambda found: found.purges._committed.clear())
    elif bug == "persists a purge before what it purges":
        node.queue_partitions.on_ready.append(_mark_first)


def _mark_first(found: QueuePartition) -> None:
    """Persists that ids are forgotten in a batch of its own, and what is purged a second later."""
    runtime, submit = found.runtime, found.runtime.submit

    def torn(command: Any, answer: Callable[[Any], None]) -> Any:
        if not isinstance(command, Purge):
            return submit(command, answer)
        runtime._carry_out(Decision(persist=(purge_record(command.group, command.end),)))
        found._timer(1.0, lambda: submit(command, answer))
        return None

    runtime.submit = torn  # type: ignore[method-assign]


def _forget_errors(found: QueuePartition) -> None:
    def message(offset: int, **options: Any) -> Message | None:
        try:
            return MessageLookup.message(found._lookup, offset, **options)
        except OffsetNotAvailable:
            return None

    found._lookup.message = message  # type: ignore[method-assign]


def _drop_at_once(
    log: Log, bases: Collection[int], now_ms: int, then: Callable[[Outcome], None] = ignore_outcome
) -> None:
    queue, log.io = log.io, IoQueue()
    try:
        Log.drop_segments(log, bases, now_ms, then)
    finally:
        log.io = queue


def _commit_unsynced(node: QueueDiskNode, one: Partition) -> None:
    def hasty(partition: Partition) -> None:
        if partition.is_leader:
            partition.mark_durable(partition.log.end_offset)
        node.flusher.flush_soon(partition)

    one.on_append = hasty


def _drop_looked_at(partition: Partition, end: int) -> None:
    """Drops segments whose messages have all been delivered, finished or not."""
    log = partition.log
    if log.io.is_busy:
        return
    limit = min(log.checkpoint.synced_to, partition.high_watermark, end)
    finished = {first.base_offset for first in log.segments if first.base_offset < limit}
    log.drop_segments(finished, reclamation.EVICT_TICKS)
