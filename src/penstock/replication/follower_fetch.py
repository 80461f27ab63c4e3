"""Leader side of replication: serves the Fetch of a follower, or reports epoch divergence."""

from penstock.log.log import Log
from penstock.replication.partition import Partition
from penstock.wire.messages.fetch import EpochEndOffset, FetchPartition, PartitionData, ReplicaState
from penstock.wire.schema import Buffer


def serve_follower(
    partition: Partition,
    wanted: FetchPartition,
    follower: ReplicaState,
    limit_bytes: int,
    now_ms: int,
    *,
    force: bool,
    blocking: bool = False,
) -> PartitionData:
    """Returns the records for a follower, and notes that the follower has all records before its fetch offset.
    `force`: returns the first batch even if it is larger than `limit_bytes`. Raises Kafka's errors; also ColdRead,
    unless `blocking`, if it would have to wait for the disk."""
    partition.check_epoch(wanted.current_leader_epoch)
    log = partition.log
    divergence = epoch_divergence(log, wanted)
    records: Buffer = b""
    if divergence is None:
        records = log.read(wanted.fetch_offset, limit_bytes, log.end_offset, blocking=blocking, force=force)
        partition.fetched(
            follower.replica_id, follower.replica_epoch, wanted.fetch_offset, wanted.log_start_offset, now_ms
        )
    return PartitionData(
        partition_index=wanted.partition,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=log.start_offset,
        diverging_epoch=divergence,
        aborted_transactions=None,
        records=records,
    )


def epoch_divergence(log: Log, wanted: FetchPartition) -> EpochEndOffset | None:
    """Returns the epoch and end offset where the follower's log diverges from this log, or None (KIP-595)."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end = log.epochs.end_offset_for(wanted.last_fetched_epoch, log.end_offset)
    if epoch >= wanted.last_fetched_epoch and end >= wanted.fetch_offset:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end)
