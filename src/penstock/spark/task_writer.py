"""What one task writes: Arrow batches come in, record batches go to the leaders of their partitions."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import ServerError, check
from penstock.client.metadata import NO_NODE, TopicInfo
from penstock.client.partitioner import Sticky
from penstock.client.transactional import BatchProducer
from penstock.foundation.clock import Clock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRecord, MessageTooLarge
from penstock.foundation.ids import TopicPartition
from penstock.records import kernel
from penstock.records.arrow import int_column, row_columns
from penstock.records.batch_draft import BatchDraft, RowColumns
from penstock.records.layout import IntColumn, Ints
from penstock.spark.background import Background
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
_LARGEST: Final = "max.message.bytes"
DRAFTS_BYTES_MAX: Final = 32 << 20
"""What waits for its batch to fill, of all partitions together; then all of it is sent."""


class _Topic:
    """A topic that the task writes to."""

    def __init__(self, info: TopicInfo, batch_bytes: int, rng: Random) -> None:
        self.batch_bytes = batch_bytes
        self._sticky = Sticky(rng)
        self.learn(info)

    def learn(self, info: TopicInfo) -> None:
        self.name = info.name
        self.partitions = len(info.partitions)
        # Those that nobody leads now would hold up what others take.
        led = [number for number, partition in info.partitions.items() if partition.leader != NO_NODE]
        self._open = led or list(info.partitions)

    @property
    def keyless(self) -> int:
        """Where rows without a key go now: to one partition until a batch is full (KIP-480)."""
        return self._sticky.choose(self._open)

    def move_on(self) -> None:
        self._sticky.move_on(self._open)


class TaskWriter:
    """Fills a batch for each partition, and sends it when it is full or the task is done."""

    def __init__(
        self,
        options: WriteOptions,
        columns: WriteColumns,
        *,
        client: KafkaClient,
        producer: BatchProducer,
        background: Background,
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
        """Of the batches, as they were sent."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Take all rows of an Arrow batch. Waits while too much is under way."""
        columns = row_columns(rows, timestamp_ms=self._clock.now_ms())
        wanted = int_column(rows.column("partition")) if self._columns.partition else None
        for topic, chosen in self._by_topic(rows):
            self._write(topic, columns, rows.num_rows, chosen, wanted)
        self.rows += rows.num_rows
        if self._drafts_bytes > DRAFTS_BYTES_MAX:
            self._send(list(self._drafts))

    def finish(self) -> None:
        """Send the rest, and wait until everything is kept."""
        self._send(list(self._drafts))
        self._background.run(self._producer.flush())

    # -- where rows go

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[_Topic, Ints | None]]:
        """Topics with their rows; None: all of them."""
        if not self._columns.topic:
            assert self._options.topic is not None
            yield self._topic(self._options.topic), None
            return
        column = rows.column("topic")
        if column.null_count:
            raise InvalidRecord(
                "a row names no topic (its column 'topic' is null); fill the column, or set option 'topic' for all"
            )
        encoded = column.dictionary_encode()
        names: list[str] = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield self._topic(names[0]), None
            return
        placed, ends = kernel.active.spread(rows.num_rows, None, None, int_column(encoded.indices), len(names), 0)
        start = 0
        for name, end in zip(names, ends, strict=True):
            yield self._topic(name), placed[start:end]
            start = end

    def _topic(self, name: str) -> _Topic:
        known = self._topics.get(name)
        if known is None:
            info = self._background.run(find_topic(self._client, name))
            limits = [self._options.batch_bytes, self._background.run(largest_batch(self._client, name))]
            if self._options.record_bytes_max is not None:
                limits.append(self._options.record_bytes_max)
            known = self._topics[name] = _Topic(info, min(limits), self._client.rng)
        return known

    def _spread(
        self, topic: _Topic, columns: RowColumns, count: int, chosen: Ints | None, wanted: IntColumn | None
    ) -> tuple[Ints, Ints]:
        """The rows of a topic by partition."""

        def place() -> tuple[Ints, Ints]:
            return kernel.active.spread(count, chosen, columns.key, wanted, topic.partitions, topic.keyless)

        try:
            return place()
        except InvalidRecord:
            before = topic.partitions
            topic.learn(self._background.run(refreshed(self._client, topic.name)))
            if topic.partitions > before:  # it has grown since it was looked at
                return place()
            raise

    def _write(
        self, topic: _Topic, columns: RowColumns, count: int, chosen: Ints | None, wanted: IntColumn | None
    ) -> None:
        try:
            placed, ends = self._spread(topic, columns, count, chosen, wanted)
        except InvalidRecord as error:
            raise InvalidRecord(f"topic {topic.name!r} has {topic.partitions} partitions: {error}") from error
        keyless = TopicPartition(topic.name, topic.keyless)
        start = 0
        for number, end in enumerate(ends):
            if end > start:
                name = TopicPartition(topic.name, number)
                if self._fill(name, topic.batch_bytes, columns, placed, start, end) and name == keyless:
                    topic.move_on()
            start = end

    # -- batches

    def _fill(
        self, name: TopicPartition, batch_bytes: int, columns: RowColumns, rows: Ints, start: int, end: int
    ) -> bool:
        """Put rows[start:end] into batches of a partition; whether one was full."""
        filled = False
        while start < end:
            draft = self._drafts.get(name)
            if draft is None:
                draft = self._drafts[name] = BatchDraft()
            before = draft.size_bytes
            start += draft.take(columns, rows, start, end, batch_bytes)
            self._drafts_bytes += draft.size_bytes - before
            if start < end or draft.size_bytes >= batch_bytes:
                self._send([name])
                filled = True
        return filled

    def _send(self, names: list[TopicPartition]) -> None:
        self._background.run(self._send_all([(name, self._seal(name)) for name in names]))

    async def _send_all(self, batches: list[tuple[TopicPartition, bytearray]]) -> None:
        for name, batch in batches:
            await self._producer.send(name, batch)

    def _seal(self, name: TopicPartition) -> bytearray:
        draft = self._drafts.pop(name)
        self._drafts_bytes -= draft.size_bytes
        most = self._options.record_bytes_max
        if most is not None and draft.size_bytes > most:
            raise MessageTooLarge(
                f"a record for partition {name} takes {draft.size_bytes} bytes; "
                f"option {REQUEST_SIZE!r} allows {most}, raise it"
            )
        producer_id, epoch, base_sequence = self._producer.reserve(name, draft.count)
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
    """A topic; one that is not there is made, if the brokers do that for producers (auto.create.topics.enable)."""
    try:
        return await client.topic(name)
    except ServerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    await client.request(Target.ANY, wanted)
    return await client.topic(name)


async def refreshed(client: KafkaClient, name: str) -> TopicInfo:
    """A topic as it is now."""

    async def look() -> TopicInfo:
        return (await client.refresh([name])).topics[name]

    return await client.retrying(look)


async def largest_batch(client: KafkaClient, name: str) -> int:
    """The largest batch that a topic takes."""

    async def ask() -> int:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=[_LARGEST])
            ],
        )
        response: DescribeConfigsResponse = await client.request(Target.ANY, request)
        (result,) = response.results
        check(result.error_code, f"topic {name!r}", result.error_message)
        return next(int(entry.value) for entry in result.configs if entry.name == _LARGEST and entry.value)

    return await client.retrying(ask)
