"""Writes the rows of one Spark task: converts Arrow batches to record batches and sends them to partition leaders."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import ServerError, check
from penstock.client.metadata import NO_NODE, TopicInfo
from penstock.client.partitioner import StickyPartitioner
from penstock.client.transactional import BatchProducer
from penstock.foundation.clock import Clock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRecord, MessageTooLarge
from penstock.foundation.ids import TopicPartition
from penstock.records import kernel
from penstock.records.arrow import int_column, row_columns
from penstock.records.batch_draft import BatchDraft, RowColumns
from penstock.records.layout import IntColumn, Ints
from penstock.spark.background import BackgroundLoop
from penstock.spark.write_options import REQUEST_SIZE, Delivery, WriteOptions
from penstock.spark.write_schema import WriteColumns
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    import pyarrow as pa

_TOPIC: Final = 2  # the number of topics among the resources that have settings
_MAX_BYTES: Final = "max.message.bytes"
DRAFTS_BYTES_MAX: Final = 32 << 20
"""Maximum total size, in bytes, of batches that are not full. Above this size all of them are sent."""


class _Topic:
    def __init__(self, info: TopicInfo, batch_bytes: int, rng: Random) -> None:
        self.batch_bytes = batch_bytes
        self._sticky = StickyPartitioner(rng)
        self.update(info)

    def update(self, info: TopicInfo) -> None:
        self.name = info.name
        self.partitions = len(info.partitions)
        # Rows for a partition without a leader would delay those for the others.
        led = [number for number, partition in info.partitions.items() if partition.leader != NO_NODE]
        self._available = led or list(info.partitions)

    @property
    def sticky(self) -> int:
        """The partition for rows without a key; it changes when a batch for this partition is full (KIP-480)."""
        return self._sticky.choose(self._available)

    def move_on(self) -> None:
        self._sticky.move_on(self._available)


class TaskWriter:
    """Fills a record batch for each partition, and sends a batch when it is full or the task ends."""

    def __init__(
        self,
        options: WriteOptions,
        columns: WriteColumns,
        *,
        client: KafkaClient,
        producer: BatchProducer,
        background: BackgroundLoop,
        clock: Clock,
    ) -> None:
        self._options = options
        self._columns = columns
        self._client = client
        self._producer = producer
        self._background = background
        self._clock = clock
        self._topics: dict[str, _Topic] = {}
        self._drafts: dict[TopicPartition, BatchDraft] = {}
        self._drafts_bytes = 0
        self.rows = 0
        self.size_bytes = 0
        """Total bytes of the batches sent."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Adds all rows of an Arrow batch to record batches. Waits while the send buffer is full."""
        columns = row_columns(rows, timestamp_ms=self._clock.now_ms())
        wanted = int_column(rows.column("partition")) if self._columns.partition else None
        for topic, indices in self._by_topic(rows):
            self._write(topic, columns, rows.num_rows, indices, wanted)
        self.rows += rows.num_rows
        if self._drafts_bytes > DRAFTS_BYTES_MAX:
            self._send(list(self._drafts))

    def finish(self) -> None:
        """Sends the incomplete batches and waits until all batches are acknowledged."""
        self._send(list(self._drafts))
        self._background.run(self._producer.flush())

    # -- partitioning

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[_Topic, Ints | None]]:
        """Yields each topic and the indices of its rows; None instead of indices if all rows are for one topic."""
        if not self._columns.topic:
            assert self._options.topic is not None
            yield self._topic(self._options.topic), None
            return
        column = rows.column("topic")
        if column.null_count:
            raise InvalidRecord(
                "a row names no topic (its column 'topic' is null); fill the column, or set the option 'topic'"
            )
        encoded = column.dictionary_encode()
        names: list[str] = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield self._topic(names[0]), None
            return
        grouped, ends = kernel.active.spread(rows.num_rows, None, None, int_column(encoded.indices), len(names), 0)
        start = 0
        for name, end in zip(names, ends, strict=True):
            yield self._topic(name), grouped[start:end]
            start = end

    def _topic(self, name: str) -> _Topic:
        known = self._topics.get(name)
        if known is None:
            info = self._background.run(find_topic(self._client, name))
            limits = [self._options.batch_bytes, self._background.run(max_message_bytes(self._client, name))]
            if self._options.record_bytes_max is not None:
                limits.append(self._options.record_bytes_max)
            known = self._topics[name] = _Topic(info, min(limits), self._client.rng)
        return known

    def _group_by_partition(
        self, topic: _Topic, columns: RowColumns, count: int, indices: Ints | None, wanted: IntColumn | None
    ) -> tuple[Ints, Ints]:
        """Returns row indices sorted by partition, and where the indices of each partition end. `indices`: the
        topic's rows (None: all). `wanted`: the partition of each row; if None, keys determine it."""

        def group() -> tuple[Ints, Ints]:
            return kernel.active.spread(count, indices, columns.key, wanted, topic.partitions, topic.sticky)

        try:
            return group()
        except InvalidRecord:
            before = topic.partitions
            topic.update(self._background.run(refresh_topic(self._client, topic.name)))
            if topic.partitions > before:  # partitions were added since the last refresh
                return group()
            raise

    def _write(
        self, topic: _Topic, columns: RowColumns, count: int, indices: Ints | None, wanted: IntColumn | None
    ) -> None:
        try:
            grouped, ends = self._group_by_partition(topic, columns, count, indices, wanted)
        except InvalidRecord as error:
            raise InvalidRecord(f"topic {topic.name!r} has {topic.partitions} partitions: {error}") from error
        sticky = topic.sticky
        start = 0
        for partition, end in enumerate(ends):
            if end > start:
                tp = TopicPartition(topic.name, partition)
                is_full = self._fill(tp, topic.batch_bytes, columns, grouped, start, end)
                if is_full and partition == sticky:
                    topic.move_on()
            start = end

    # -- batches

    def _fill(
        self, tp: TopicPartition, batch_bytes: int, columns: RowColumns, rows: Ints, start: int, end: int
    ) -> bool:
        """Adds rows[start:end] to batches of a partition, and sends full batches. Returns whether any was full."""
        filled = False
        while start < end:
            draft = self._drafts.get(tp)
            if draft is None:
                draft = self._drafts[tp] = BatchDraft()
            before = draft.size_bytes
            start += draft.take(columns, rows, start, end, batch_bytes)
            self._drafts_bytes += draft.size_bytes - before
            if start < end or draft.size_bytes >= batch_bytes:
                self._send([tp])
                filled = True
        return filled

    def _send(self, tps: list[TopicPartition]) -> None:
        self._background.run(self._send_all([(tp, self._seal(tp)) for tp in tps]))

    async def _send_all(self, batches: list[tuple[TopicPartition, bytearray]]) -> None:
        for tp, batch in batches:
            await self._producer.send(tp, batch)

    def _seal(self, tp: TopicPartition) -> bytearray:
        draft = self._drafts.pop(tp)
        self._drafts_bytes -= draft.size_bytes
        most = self._options.record_bytes_max
        if most is not None and draft.size_bytes > most:
            raise MessageTooLarge(
                f"a record for partition {tp} takes {draft.size_bytes} bytes; "
                f"option {REQUEST_SIZE!r} allows {most}, raise it"
            )
        producer_id, epoch, base_sequence = self._producer.reserve(tp, draft.count)
        batch = draft.seal(
            codec=self._options.codec,
            level=self._options.level,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=base_sequence,
            transactional=self._options.delivery is Delivery.EXACTLY_ONCE,
        )
        self.size_bytes += len(batch)
        return batch


async def find_topic(client: KafkaClient, name: str) -> TopicInfo:
    """Returns a topic's metadata. A missing topic is created if the brokers allow it (auto.create.topics.enable)."""
    try:
        return await client.topic(name)
    except ServerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    await client.request(Target.ANY, wanted)
    return await client.topic(name)


async def refresh_topic(client: KafkaClient, name: str) -> TopicInfo:
    """Fetches and returns the current metadata of a topic."""

    async def look() -> TopicInfo:
        return (await client.refresh([name])).topics[name]

    return await client.retrying(look)


async def max_message_bytes(client: KafkaClient, name: str) -> int:
    """Returns the `max.message.bytes` setting of a topic."""

    async def ask() -> int:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=[_MAX_BYTES])
            ],
        )
        response: DescribeConfigsResponse = await client.request(Target.ANY, request)
        (result,) = response.results
        check(result.error_code, f"topic {name!r}", result.error_message)
        return next(int(entry.value) for entry in result.configs if entry.name == _MAX_BYTES and entry.value)

    return await client.retrying(ask)
