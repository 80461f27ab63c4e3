"""Offset lookup (ListOffsets): earliest, latest, by timestamp; and the offset that a reader starts at."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from penstock.client.cluster import KafkaClient
from penstock.client.errors import ConnectionFailed, ServerError, refusal
from penstock.client.metadata import PartitionInfo
from penstock.foundation.errors import OffsetOutOfRange
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CONSUMER = -1
NONE_FOUND = -1


class When(IntEnum):
    """Special timestamps of ListOffsets that stand for an offset such as earliest or latest."""

    LATEST = -1
    EARLIEST = -2


class FoundOffset(NamedTuple):
    offset: int
    """The offset that was found; NONE_FOUND if no record has the requested timestamp or a later one."""
    timestamp_ms: int


PartialOffsets = tuple[dict[TopicPartition, FoundOffset], dict[TopicPartition, ServerError | ConnectionFailed]]


async def list_offsets_once(
    client: KafkaClient, tps: Collection[TopicPartition], when: int, *, committed: bool = False
) -> PartialOffsets:
    """Sends ListOffsets to each leader, without retries. Returns the offsets found and the errors, by partition.
    `when`: a value of `When`, or a time in ms. `committed`: whether to use isolation level read_committed."""
    found: dict[TopicPartition, FoundOffset] = {}
    failed: dict[TopicPartition, ServerError | ConnectionFailed] = {}
    leaders: dict[int, list[PartitionInfo]] = {}
    for tp in tps:
        try:
            partition = await client.leader(tp)
        except ServerError as error:
            failed[tp] = error
        else:
            leaders.setdefault(partition.leader, []).append(partition)
    for node_id, partitions in leaders.items():
        try:
            response: ListOffsetsResponse = await client.request(node_id, _request(partitions, when, committed))
        except (ServerError, ConnectionFailed) as error:
            failed |= dict.fromkeys([partition.tp for partition in partitions], error)
            continue
        for topic in response.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                if entry.error_code:
                    failed[tp] = refusal(entry.error_code, f"partition {tp}")
                else:
                    found[tp] = FoundOffset(entry.offset, entry.timestamp)
    return found, failed


def _request(partitions: Iterable[PartitionInfo], when: int, committed: bool) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.tp.topic, []).append(
            ListOffsetsPartition(
                partition_index=partition.tp.partition,
                current_leader_epoch=partition.leader_epoch,
                timestamp=when,
            )
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=committed,
        topics=[ListOffsetsTopic(name=name, partitions=entries) for name, entries in topics.items()],
    )


async def list_offsets(
    client: KafkaClient, tps: Collection[TopicPartition], when: int, *, committed: bool = False
) -> dict[TopicPartition, FoundOffset]:
    """Returns each partition's offset for `when`: a value of `When`, or a time in ms (first record at or after it).

    `committed`: for a read_committed consumer, for which LATEST is the last stable offset.
    """
    found: dict[TopicPartition, FoundOffset] = {}

    async def attempt() -> dict[TopicPartition, FoundOffset]:
        left = [tp for tp in tps if tp not in found]
        new, failed = await list_offsets_once(client, left, when, committed=committed)
        found.update(new)
        if failed:
            raise next(iter(failed.values()))
        return found

    return await client.retrying(attempt, topics={tp.topic for tp in tps})


class Origin(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    BACK = "back"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Start position: `Start(Origin.EARLIEST)`, `Start(Origin.OFFSET, 17)`, `Start(Origin.TIME, 1767225600000)`.

    `Origin.BACK` counts from the end: the last `value` offsets of each partition.
    """

    origin: Origin
    value: int = 0


class LogRange(NamedTuple):
    """The offsets that a partition holds: from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


async def log_ranges(client: KafkaClient, tps: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
    """Returns the log start offset and the high watermark of each partition."""
    first = await list_offsets(client, tps, When.EARLIEST)
    last = await list_offsets(client, tps, When.LATEST)
    return {tp: LogRange(first[tp].offset, last[tp].offset) for tp in tps}


async def resolve_start(
    client: KafkaClient, start: Start, held: Mapping[TopicPartition, LogRange]
) -> dict[TopicPartition, int]:
    """Returns the offset to start at in each partition. `held`: the offsets that each partition's log holds.
    Raises OffsetOutOfRange if `start` is an offset that is neither in one of these logs nor at its end."""
    found = await list_offsets(client, list(held), start.value) if start.origin is Origin.TIME else {}
    return start_offsets(start, held, {tp: at.offset for tp, at in found.items()})


def start_offsets(
    start: Start, held: Mapping[TopicPartition, LogRange], at_time: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Returns the offset to start at in each partition. `at_time`: for Origin.TIME, the offsets found for that time.

    Origin.OFFSET raises OffsetOutOfRange if no partition holds the offset; partitions without it start at the nearer
    end of their log.
    """
    match start.origin:
        case Origin.EARLIEST:
            return {tp: span.start for tp, span in held.items()}
        case Origin.LATEST:
            return {tp: span.end for tp, span in held.items()}
        case Origin.BACK:
            return {tp: max(span.start, span.end - start.value) for tp, span in held.items()}
        case Origin.TIME:
            # If no record is that late, start at the end.
            return {
                tp: offset if (offset := at_time.get(tp, NONE_FOUND)) >= 0 else span.end for tp, span in held.items()
            }
        case Origin.OFFSET:
            if held and not any(span.start <= start.value <= span.end for span in held.values()):
                holds = ", ".join(f"{tp} holds {span.start} to {span.end}" for tp, span in held.items())
                raise OffsetOutOfRange(f"offset {start.value} is not there; {holds}")
            return {tp: min(max(start.value, span.start), span.end) for tp, span in held.items()}
