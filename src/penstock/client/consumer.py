"""Consumer with manual assignment: long-polls the leaders of its partitions (Fetch) and decodes record batches.

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
from penstock.client.offsets import log_ranges
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
"""The last version of Fetch with topic names; later versions have only topic ids."""
REFRESH_S: Final = 0.2
"""Minimum seconds between two metadata refreshes of stale topics while other partitions deliver records."""
LANE: Final = "fetch"
"""Name of the separate connection for Fetch: other requests on it would have to wait behind a long poll."""


class ConsumedRecord(NamedTuple):
    partition: TopicPartition
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 << 20
    """Maximum size, in bytes, of one response, unless a single batch is larger."""
    partition_max_bytes: int = 1 << 20
    skip_trimmed: bool = False
    """Whether to skip records that were deleted before they were read; if False, OffsetOutOfRange is raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    offset: int
    limit_bytes: int


class Consumer:
    """Reads assigned partitions, without a consumer group. Only one task may poll it."""

    def __init__(self, client: KafkaClient, settings: ConsumerSettings | None = None) -> None:
        self._client = client
        self._settings = settings or ConsumerSettings()
        self._positions: dict[TopicPartition, _Position] = {}
        self._fetches: dict[int, asyncio.Task[_FetchResult]] = {}
        self._stale_topics: set[str] = set()
        self._refreshed_s = float("-inf")
        self._failure: PenstockError | None = None
        self.high_watermarks: dict[TopicPartition, int] = {}
        """The high watermark of each partition, from its last Fetch response."""

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Adds partitions with the offsets to read from; a partition that is already assigned seeks to its offset."""
        for tp, offset in offsets.items():
            self._positions[tp] = _Position(offset=offset, limit_bytes=self._settings.partition_max_bytes)

    def drop(self, tp: TopicPartition) -> None:
        """Removes a partition from the assignment."""
        self._positions.pop(tp, None)

    @property
    def assigned(self) -> list[TopicPartition]:
        return list(self._positions)

    def position(self, tp: TopicPartition) -> int:
        """Returns the next offset to read."""
        return self._positions[tp].offset

    async def close(self) -> None:
        fetches, self._fetches = self._fetches, {}
        for task in fetches.values():
            task.cancel()
        await asyncio.gather(*fetches.values(), return_exceptions=True)

    async def poll(self) -> list[ConsumedRecord]:
        """Returns the next records, in offset order per partition; empty if none arrive within `max_wait_ms`."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if not self._positions:
            return []
        return await self._client.retrying(self._poll_once, topics={tp.topic for tp in self._positions})

    async def _poll_once(self) -> list[ConsumedRecord]:
        await self._refresh_stale()
        await self._start_fetches()
        done, _ = await asyncio.wait(self._fetches.values(), return_when=asyncio.FIRST_COMPLETED)
        self._fetches = {node_id: task for node_id, task in self._fetches.items() if task not in done}
        consumed: list[ConsumedRecord] = []
        failure: PenstockError | None = None
        for task in done:
            try:
                result = task.result()
            except PenstockError as error:
                failure = error
                continue
            for tp, position, data in result.parts:
                try:
                    consumed += await self._read(tp, position, data)
                except PenstockError as error:
                    failure = error
                    self._stale_topics.add(tp.topic)
        if failure is not None and not consumed:
            raise failure
        # Records are returned first. A retriable error occurs again; any other is raised by the next poll.
        if failure is not None and not _is_retriable(failure):
            self._failure = failure
        return consumed

    async def _refresh_stale(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._stale_topics and now_s - self._refreshed_s >= REFRESH_S:
            stale, self._stale_topics = self._stale_topics, set()
            self._refreshed_s = now_s
            await self._client.refresh(stale)

    async def _start_fetches(self) -> None:
        """Starts a long poll to each leader with none in flight. Partitions without a leader do not block others."""
        leaders: dict[int, list[PartitionInfo]] = {}
        failure: ServerError | None = None
        for tp in self._positions:
            try:
                partition = await self._client.leader(tp)
            except ServerError as error:
                failure = error
                self._stale_topics.add(tp.topic)
            else:
                leaders.setdefault(partition.leader, []).append(partition)
        for node_id, partitions in leaders.items():
            if node_id not in self._fetches:
                requested = [(partition, self._positions[partition.tp]) for partition in partitions]
                self._fetches[node_id] = asyncio.create_task(self._fetch(node_id, requested))
        if failure is not None and not self._fetches:
            raise failure

    async def _fetch(self, node_id: int, requested: "list[tuple[PartitionInfo, _Position]]") -> "_FetchResult":
        settings = self._settings
        topics = {partition.tp.topic: self._client.view.topics[partition.tp.topic] for partition, _ in requested}
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            topics=[_fetch_topic(topic, requested) for topic in topics.values()],
        )
        connection = await self._client.connection(node_id, LANE)
        response: FetchResponse = await connection.request(
            request,
            timeout_s=settings.max_wait_ms / 1000 + self._client.settings.connection.request_timeout_s,
            version_max=None if all(topic.has_id for topic in topics.values()) else FETCH_BY_NAME,
        )
        if response.error_code:
            raise refusal(response.error_code, f"fetching from broker {node_id}")
        by_id = {topic.topic_id: topic.name for topic in topics.values() if topic.has_id}
        positions = {partition.tp: position for partition, position in requested}
        parts = []
        for topic in response.responses:
            for data in topic.partitions:
                tp = TopicPartition(topic.topic or by_id[topic.topic_id], data.partition_index)
                parts.append((tp, positions[tp], data))
        return _FetchResult(parts)

    async def _read(self, tp: TopicPartition, position: _Position, data: PartitionData) -> list[ConsumedRecord]:
        """Returns the records in one partition's response, and advances the partition's position."""
        if self._positions.get(tp) != position:
            return []  # dropped, or sought, while the fetch was in flight
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._move_into_range(tp, position)
            return []
        if data.error_code:
            raise refusal(data.error_code, f"partition {tp}")
        self.high_watermarks[tp] = data.high_watermark
        records, end_offset = read_batches(tp, data.records or b"", position.offset)
        if end_offset > position.offset:
            # Moved to the end: the first partition of a request gets a complete batch, however large.
            del self._positions[tp]
            self._positions[tp] = replace(position, offset=end_offset, limit_bytes=self._settings.partition_max_bytes)
        elif data.records:
            self._positions[tp] = _with_larger_limit(tp, position)
        return records

    async def _move_into_range(self, tp: TopicPartition, position: _Position) -> None:
        held = (await log_ranges(self._client, [tp]))[tp]
        if held.start <= position.offset <= held.end:
            return  # it was written meanwhile
        if not (self._settings.skip_trimmed and position.offset < held.start):
            raise OffsetOutOfRange(f"partition {tp} holds offsets {held.start} to {held.end}, not {position.offset}")
        self._positions[tp] = replace(position, offset=held.start)


def _is_retriable(error: PenstockError) -> bool:
    return isinstance(error, ConnectionFailed) or (isinstance(error, ServerError) and error.code in STALE | TRANSIENT)


class _FetchResult(NamedTuple):
    parts: list[tuple[TopicPartition, _Position, PartitionData]]
    """For each partition in the response: its name, the requested position, and its data."""


def _fetch_topic(topic: TopicInfo, requested: list[tuple[PartitionInfo, _Position]]) -> FetchTopic:
    return FetchTopic(
        topic=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            FetchPartition(
                partition=partition.tp.partition,
                current_leader_epoch=partition.leader_epoch,
                fetch_offset=position.offset,
                partition_max_bytes=position.limit_bytes,
            )
            for partition, position in requested
            if partition.tp.topic == topic.name
        ],
    )


def read_batches(tp: TopicPartition, buf: Buffer, offset: int) -> tuple[list[ConsumedRecord], int]:
    """Returns the records in `buf` from `offset` on, and the next offset to read. Ignores a truncated last batch."""
    consumed: list[ConsumedRecord] = []
    view = memoryview(buf)
    for at, header in batches(view):
        if header.next_offset <= offset:
            continue
        try:
            check_batch(view, at, header)
            records = [] if header.is_control else read_records(view[at : at + header.size_bytes])
        except CorruptMessage as error:
            raise CorruptMessage(f"partition {tp} is damaged at offset {header.base_offset}: {error}") from error
        consumed += [ConsumedRecord(tp, record) for record in records if record.offset >= offset]
        offset = header.next_offset
    return consumed, offset


def _with_larger_limit(tp: TopicPartition, position: _Position) -> _Position:
    """Returns `position` with its byte limit doubled for a large batch. Raises MessageTooLarge above INT_MAX."""
    if position.limit_bytes >= INT_MAX // 2:
        raise MessageTooLarge(f"the batch at offset {position.offset} of partition {tp} is too large to be read")
    return replace(position, limit_bytes=position.limit_bytes * 2)
