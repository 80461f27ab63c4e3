"""ListOffsets: the first, the last, or the first at or after a time."""

from enum import IntEnum

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.isolation import wants_committed
from penstock.broker.registry import handles
from penstock.foundation.errors import OffsetNotAvailable, PenstockError
from penstock.log.times import find_latest_record, find_time
from penstock.replication.partition import Partition
from penstock.wire.keys import ApiKey
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


class Spec(IntEnum):
    """Times that are no times."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@handles(ApiKey.LIST_OFFSETS)
def list_offsets(request: ListOffsetsRequest, call: Call, broker: Broker) -> ListOffsetsResponse:
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            try:
                partition = broker.readable(topic.name, b"", wanted.partition_index)
                partition.check_epoch(wanted.current_leader_epoch)
                is_stable = wants_committed(request.isolation_level)
                answers.append(_find(partition, wanted, is_stable))
            except PenstockError as error:
                answers.append(
                    ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)
                )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _find(partition: Partition, wanted: ListOffsetsPartition, is_stable: bool) -> ListOffsetsPartitionResponse:
    """`is_stable`: for a reader of committed records, to whom nothing from the last stable offset on is there yet."""
    log = partition.log
    if not partition.is_settled and wanted.timestamp != Spec.EARLIEST:
        raise OffsetNotAvailable(f"{partition.name} has a new leader, which is still counting (KIP-207)")
    end = partition.last_stable_offset if is_stable else partition.high_watermark
    if partition.veil is not None:
        end = partition.veil.visible_to(end)
    match wanted.timestamp:
        case Spec.LATEST:
            timestamp, offset = -1, end
        case Spec.EARLIEST | Spec.EARLIEST_LOCAL:
            timestamp, offset = -1, log.start_offset
        case Spec.MAX_TIMESTAMP:
            timestamp, offset = find_latest_record(log, end) or (-1, -1)
        case Spec.LATEST_TIERED | Spec.EARLIEST_PENDING_UPLOAD:
            timestamp, offset = -1, -1  # there is no tiered storage
        case _:
            timestamp, offset = find_time(log, wanted.timestamp, end) or (-1, -1)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=log.epochs.at(min(offset, log.end_offset - 1)) if offset >= 0 else -1,
    )
