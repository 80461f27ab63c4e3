"""ListOffsets: returns the earliest or latest offset, or the first offset at or after a timestamp.

A search by timestamp reads batch headers in time slices and decompresses one batch, on a thread if it is large.
"""

import asyncio
from collections.abc import Awaitable
from enum import IntEnum
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.isolation import wants_committed
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import MessageTooLarge, OffsetNotAvailable, PenstockError
from penstock.log.disk import ColdRead
from penstock.log.log import Log
from penstock.log.timestamp_lookup import Candidate, TimestampAndOffset, candidates, latest_timestamp
from penstock.records.columns import INLINE_BODY_BYTES
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
    """Special values of the timestamp field, such as LATEST and EARLIEST."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


NOT_FOUND: Final = (-1, -1)
COLD_READS_MAX: Final = 10


@handles(ApiKey.LIST_OFFSETS)
def list_offsets(
    request: ListOffsetsRequest, call: Call, broker: Broker
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    if any(_is_search(wanted) for topic in request.topics for wanted in topic.partitions):
        return _search_all(request, call, broker)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_answer(request, topic.name, wanted, call, broker) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _is_search(wanted: ListOffsetsPartition) -> bool:
    return wanted.timestamp >= 0 or wanted.timestamp == Spec.MAX_TIMESTAMP


def _answer(
    request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition, call: Call, broker: Broker
) -> ListOffsetsPartitionResponse:
    """Returns the response for a partition whose offset is found without a search by timestamp."""
    try:
        partition, end = _partition(request, topic, wanted, call, broker)
        log = partition.log
        match wanted.timestamp:
            case Spec.LATEST:
                return _found(log, wanted, (-1, end))
            case Spec.EARLIEST | Spec.EARLIEST_LOCAL:
                return _found(log, wanted, (-1, log.start_offset))
            case _:
                return _found(log, wanted, NOT_FOUND)  # there is no tiered storage
    except PenstockError as error:
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)


def _partition(
    request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition, call: Call, broker: Broker
) -> tuple[Partition, int]:
    """Finds a partition and its end offset for the request's isolation level. Raises a Kafka error on failure."""
    call.check(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    partition = broker.readable_partition(topic, b"", wanted.partition_index)
    partition.check_epoch(wanted.current_leader_epoch)
    is_stable = wants_committed(request.isolation_level)
    if not partition.is_settled and wanted.timestamp != Spec.EARLIEST:
        raise OffsetNotAvailable(
            f"{partition.name} has a new leader whose high watermark is not current yet; try again (KIP-207)"
        )
    end = partition.last_stable_offset if is_stable else partition.high_watermark
    return partition, end if partition.visibility is None else partition.visibility.visible_to(end)


def _found(log: Log, wanted: ListOffsetsPartition, found: TimestampAndOffset) -> ListOffsetsPartitionResponse:
    timestamp, offset = found
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=log.epochs.at(min(offset, log.end_offset - 1)) if offset >= 0 else -1,
    )


async def _search_all(request: ListOffsetsRequest, call: Call, broker: Broker) -> ListOffsetsResponse:
    known: dict[tuple[str, int, int, int], ListOffsetsPartitionResponse] = {}
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            key = topic.name, wanted.partition_index, wanted.timestamp, wanted.current_leader_epoch
            if key not in known:  # some clients repeat partitions
                known[key] = await _search(request, topic.name, wanted, call, broker)
            answers.append(known[key])
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


async def _search(
    request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition, call: Call, broker: Broker
) -> ListOffsetsPartitionResponse:
    if not _is_search(wanted):
        return _answer(request, topic, wanted, call, broker)
    try:
        partition, end = _partition(request, topic, wanted, call, broker)
        log = partition.log
        found: TimestampAndOffset | None = None
        for attempt in range(COLD_READS_MAX):
            try:
                found = await _find(log, wanted.timestamp, end, broker, blocking=attempt == COLD_READS_MAX - 1)
                break
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(broker.threads, cold.warm)
        return _found(log, wanted, found or NOT_FOUND)
    except PenstockError as error:
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)


async def _find(log: Log, timestamp: int, limit: int, broker: Broker, blocking: bool) -> TimestampAndOffset | None:
    """Returns (timestamp, offset) of the first record at or after `timestamp`, or with the highest timestamp for
    MAX_TIMESTAMP; None if that record is not below offset `limit`. Unless `blocking`, raises ColdRead if data is not
    in the page cache."""
    slices = broker.slices
    async with slices:
        if timestamp == Spec.MAX_TIMESTAMP:
            timestamp = latest_timestamp(log)
            if timestamp < 0:
                return None
        for candidate in candidates(log, timestamp, limit, blocking):
            if candidate is not None:
                found = await _search_batch(candidate, log, broker)
                if found is not None:
                    return found if found[1] < limit else None
            if slices.is_over:
                await slices.next()
    return None


async def _search_batch(candidate: Candidate, log: Log, broker: Broker) -> TimestampAndOffset | None:
    """Returns (timestamp, offset) of the batch's first record at or after the searched timestamp; None if there is
    none. If the batch is too large to decompress, returns its maximum timestamp and its first offset."""
    try:
        return candidate.find(INLINE_BODY_BYTES)
    except MessageTooLarge:
        candidate = candidate._replace(batch=bytes(candidate.batch))  # the file may be truncated while a thread reads
    try:
        broker.slices.release()
        work = asyncio.get_running_loop().run_in_executor(
            broker.threads, candidate.find, log.settings.decompressed_bytes_max
        )
        return await work
    except MessageTooLarge:
        return candidate.at_start
    finally:
        await broker.slices.resume()
