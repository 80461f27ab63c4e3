"""Reading: long polls to the leaders of the assigned partitions, records straight from their batches.

consumer = Consumer(client)
consumer.assign({TopicPartition("orders", 0): 17})
for name, record in await consumer.poll():
    print(name.partition, record.offset, record.value)
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from penstock.client.cluster import KafkaClient
from penstock.client.errors import STALE, TRANSIENT, ConnectionFailed, ServerError, refusal
from penstock.client.metadata import PartitionInfo, TopicInfo
from penstock.client.offsets import ranges
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import CorruptMessage, MessageTooLarge, OffsetOutOfRange, PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.foundation.settings import INT_MAX
from penstock.records.batch import batches, check_batch
from penstock.records.build import Record, read_records
from penstock.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.wire.schema import Buffer

FETCH_BY_NAME: Final = 12
"""The last version of Fetch that names topics; later ones have only ids."""
REFRESH_S: Final = 0.2
"""The shortest time between two looks at stale topics while other partitions bring records."""
LANE: Final = "fetch"
"""A connection of its own: a long poll holds up whatever is asked after it."""


class Consumed(NamedTuple):
    partition: TopicPartition
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 << 20
    """The most that one answer holds, unless a single batch is larger."""
    partition_max_bytes: int = 1 << 20
    skip_trimmed: bool = False
    """Whether to go on at the start of a partition if the next offset to read was trimmed away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    offset: int
    limit_bytes: int


class Consumer:
    """See the top of this file. One task polls it."""

    def __init__(self, client: KafkaClient, settings: ConsumerSettings | None = None) -> None:
        self._client = client
        self._settings = settings or ConsumerSettings()
        self._positions: dict[TopicPartition, _Position] = {}
        self._polls: dict[int, asyncio.Task[_Answer]] = {}
        self._stale: set[str] = set()
        self._refreshed_s = float("-inf")
        self._failure: PenstockError | None = None
        self.high_watermarks: dict[TopicPartition, int] = {}
        """The end of each partition, as its leader last told."""

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, from these offsets on; partitions that are read already move there."""
        for name, offset in offsets.items():
            self._positions[name] = _Position(offset=offset, limit_bytes=self._settings.partition_max_bytes)

    def drop(self, name: TopicPartition) -> None:
        """Read this partition no more."""
        self._positions.pop(name, None)

    @property
    def assigned(self) -> list[TopicPartition]:
        return list(self._positions)

    def position(self, name: TopicPartition) -> int:
        """The offset that is read next."""
        return self._positions[name].offset

    async def close(self) -> None:
        polls, self._polls = self._polls, {}
        for task in polls.values():
            task.cancel()
        await asyncio.gather(*polls.values(), return_exceptions=True)

    async def poll(self) -> list[Consumed]:
        """What the next answer brings, in order of offset within a partition; nothing if time was up first."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if not self._positions:
            return []
        return await self._client.retrying(self._round, topics={name.topic for name in self._positions})

    async def _round(self) -> list[Consumed]:
        await self._refresh_stale()
        await self._ask()
        done, _ = await asyncio.wait(self._polls.values(), return_when=asyncio.FIRST_COMPLETED)
        self._polls = {node_id: task for node_id, task in self._polls.items() if task not in done}
        consumed: list[Consumed] = []
        failure: PenstockError | None = None
        for task in done:
            try:
                answer = task.result()
            except PenstockError as error:
                failure = error
                continue
            for name, asked, data in answer.parts:
                try:
                    consumed += await self._take(name, asked, data)
                except PenstockError as error:
                    failure = error
                    self._stale.add(name.topic)
        if failure is not None and not consumed:
            raise failure
        # What was read is handed over first. Trouble that may pass shows again; the rest is told next time.
        if failure is not None and not _may_pass(failure):
            self._failure = failure
        return consumed

    async def _refresh_stale(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._stale and now_s - self._refreshed_s >= REFRESH_S:
            stale, self._stale = self._stale, set()
            self._refreshed_s = now_s
            await self._client.refresh(stale)

    async def _ask(self) -> None:
        """One long poll to each leader that has none under way. A partition without a leader holds up no other."""
        leaders: dict[int, list[PartitionInfo]] = {}
        failure: ServerError | None = None
        for name in self._positions:
            try:
                partition = await self._client.leader(name)
            except ServerError as error:
                failure = error
                self._stale.add(name.topic)
            else:
                leaders.setdefault(partition.leader, []).append(partition)
        for node_id, partitions in leaders.items():
            if node_id not in self._polls:
                wanted = [(partition, self._positions[partition.name]) for partition in partitions]
                self._polls[node_id] = asyncio.create_task(self._fetch(node_id, wanted))
        if failure is not None and not self._polls:
            raise failure

    async def _fetch(self, node_id: int, wanted: "list[tuple[PartitionInfo, _Position]]") -> "_Answer":
        settings = self._settings
        topics = {partition.name.topic: self._client.view.topics[partition.name.topic] for partition, _ in wanted}
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            topics=[_topic(topic, wanted) for topic in topics.values()],
        )
        connection = await self._client.connection(node_id, LANE)
        response: FetchResponse = await connection.request(
            request,
            timeout_s=settings.max_wait_ms / 1000 + self._client.settings.connection.request_timeout_s,
            newest=None if all(topic.has_id for topic in topics.values()) else FETCH_BY_NAME,
        )
        if response.error_code:
            raise refusal(response.error_code, f"fetching from broker {node_id}")
        by_id = {topic.topic_id: topic.name for topic in topics.values() if topic.has_id}
        asked = {partition.name: position for partition, position in wanted}
        parts = []
        for topic in response.responses:
            for data in topic.partitions:
                name = TopicPartition(topic.topic or by_id[topic.topic_id], data.partition_index)
                parts.append((name, asked[name], data))
        return _Answer(parts)

    async def _take(self, name: TopicPartition, asked: _Position, data: PartitionData) -> list[Consumed]:
        """The records of one partition's answer; moves its position past them."""
        if self._positions.get(name) != asked:
            return []  # dropped, or moved, while the answer was on its way
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._move_into_range(name, asked)
            return []
        if data.error_code:
            raise refusal(data.error_code, f"partition {name}")
        self.high_watermarks[name] = data.high_watermark
        records, next_offset = read_batches(name, data.records or b"", asked.offset)
        if next_offset > asked.offset:
            # To the end of the line: the first in it gets a batch whole, however large.
            del self._positions[name]
            self._positions[name] = replace(asked, offset=next_offset, limit_bytes=self._settings.partition_max_bytes)
        elif data.records:
            self._positions[name] = _grown(name, asked)
        return records

    async def _move_into_range(self, name: TopicPartition, asked: _Position) -> None:
        held = (await ranges(self._client, [name]))[name]
        if held.start <= asked.offset <= held.end:
            return  # it is there by now
        if not (self._settings.skip_trimmed and asked.offset < held.start):
            raise OffsetOutOfRange(f"partition {name} holds offsets {held.start} to {held.end}, not {asked.offset}")
        self._positions[name] = replace(asked, offset=held.start)


def _may_pass(error: PenstockError) -> bool:
    return isinstance(error, ConnectionFailed) or (isinstance(error, ServerError) and error.code in STALE | TRANSIENT)


class _Answer(NamedTuple):
    parts: list[tuple[TopicPartition, _Position, PartitionData]]
    """Partition, the position that was asked for, and what came."""


def _topic(topic: TopicInfo, wanted: list[tuple[PartitionInfo, _Position]]) -> FetchTopic:
    return FetchTopic(
        topic=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            FetchPartition(
                partition=partition.name.partition,
                current_leader_epoch=partition.leader_epoch,
                fetch_offset=position.offset,
                partition_max_bytes=position.limit_bytes,
            )
            for partition, position in wanted
            if partition.name.topic == topic.name
        ],
    )


def read_batches(name: TopicPartition, buf: Buffer, offset: int) -> tuple[list[Consumed], int]:
    """The records from `offset` on, and the offset after them; a batch cut off at the end comes next time."""
    consumed: list[Consumed] = []
    view = memoryview(buf)
    for at, header in batches(view):
        if header.next_offset <= offset:
            continue
        try:
            check_batch(view, at, header)
            records = [] if header.is_control else read_records(view[at : at + header.size_bytes])
        except CorruptMessage as error:
            raise CorruptMessage(f"partition {name} is damaged at offset {header.base_offset}: {error}") from error
        consumed += [Consumed(name, record) for record in records if record.offset >= offset]
        offset = header.next_offset
    return consumed, offset


def _grown(name: TopicPartition, asked: _Position) -> _Position:
    """Bytes came, and not one whole batch: ask for more of them."""
    if asked.limit_bytes >= INT_MAX // 2:
        raise MessageTooLarge(f"the batch at offset {asked.offset} of partition {name} is too large to be read")
    return replace(asked, limit_bytes=asked.limit_bytes * 2)
