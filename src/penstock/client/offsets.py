"""Finding offsets: the first, the next, the first at or after a time; and where a reader wants to start."""

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
    """Times that are no times, as ListOffsets writes them."""

    LATEST = -1
    EARLIEST = -2


class Found(NamedTuple):
    offset: int
    """NONE_FOUND if no record is that late."""
    timestamp_ms: int


Attempt = tuple[dict[TopicPartition, Found], dict[TopicPartition, ServerError | ConnectionFailed]]


async def list_offsets_once(
    client: KafkaClient, names: Collection[TopicPartition], when: int, *, committed: bool = False
) -> Attempt:
    """One look: what was found, and why the rest was not."""
    found: dict[TopicPartition, Found] = {}
    failed: dict[TopicPartition, ServerError | ConnectionFailed] = {}
    leaders: dict[int, list[PartitionInfo]] = {}
    for name in names:
        try:
            partition = await client.leader(name)
        except ServerError as error:
            failed[name] = error
        else:
            leaders.setdefault(partition.leader, []).append(partition)
    for node_id, partitions in leaders.items():
        try:
            response: ListOffsetsResponse = await client.request(node_id, _request(partitions, when, committed))
        except (ServerError, ConnectionFailed) as error:
            failed |= dict.fromkeys([partition.name for partition in partitions], error)
            continue
        for topic in response.topics:
            for entry in topic.partitions:
                name = TopicPartition(topic.name, entry.partition_index)
                if entry.error_code:
                    failed[name] = refusal(entry.error_code, f"partition {name}")
                else:
                    found[name] = Found(entry.offset, entry.timestamp)
    return found, failed


def _request(partitions: Iterable[PartitionInfo], when: int, committed: bool) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.name.topic, []).append(
            ListOffsetsPartition(
                partition_index=partition.name.partition,
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
    client: KafkaClient, names: Collection[TopicPartition], when: int, *, committed: bool = False
) -> dict[TopicPartition, Found]:
    """Offsets of partitions: at one of `When`, or of the first record at or after a time in ms.

    `committed`: for a reader of committed records, whose end is where the first open transaction begins.
    """
    found: dict[TopicPartition, Found] = {}

    async def look() -> dict[TopicPartition, Found]:
        left = [name for name in names if name not in found]
        new, failed = await list_offsets_once(client, left, when, committed=committed)
        found.update(new)
        if failed:
            raise next(iter(failed.values()))
        return found

    return await client.retrying(look, topics={name.topic for name in names})


class Origin(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    BACK = "back"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to start: `Start(Origin.EARLIEST)`, `Start(Origin.OFFSET, 17)`, `Start(Origin.TIME, 1767225600000)`.

    `Origin.BACK` counts from the end: the last so many offsets of each partition.
    """

    origin: Origin
    value: int = 0


class Range(NamedTuple):
    """The offsets that a partition holds: from `start` up to, and without, `end`."""

    start: int
    end: int


async def ranges(client: KafkaClient, names: Collection[TopicPartition]) -> dict[TopicPartition, Range]:
    """What each partition holds now."""
    first = await list_offsets(client, names, When.EARLIEST)
    last = await list_offsets(client, names, When.LATEST)
    return {name: Range(first[name].offset, last[name].offset) for name in names}


async def resolve(
    client: KafkaClient, start: Start, held: Mapping[TopicPartition, Range]
) -> dict[TopicPartition, int]:
    """The offset to start at in each partition.

    A plain offset must lie in at least one of them; the others start at whichever of their ends is nearer to it.
    """
    match start.origin:
        case Origin.EARLIEST:
            return {name: span.start for name, span in held.items()}
        case Origin.LATEST:
            return {name: span.end for name, span in held.items()}
        case Origin.BACK:
            return {name: max(span.start, span.end - start.value) for name, span in held.items()}
        case Origin.TIME:
            found = await list_offsets(client, list(held), start.value)
            # Nothing is that late: only what is yet to come.
            return {name: found[name].offset if found[name].offset >= 0 else span.end for name, span in held.items()}
        case Origin.OFFSET:
            if not any(span.start <= start.value <= span.end for span in held.values()):
                holds = ", ".join(f"{name} holds {span.start} to {span.end}" for name, span in held.items())
                raise OffsetOutOfRange(f"offset {start.value} is not there; {holds}")
            return {name: min(max(start.value, span.start), span.end) for name, span in held.items()}
