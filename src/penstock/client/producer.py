"""Idempotent producer: partitions records, collects them into batches, and sends them to leaders with retries.

    async with Producer(client) as producer:
        answer = await producer.send("orders", b"hello", key=b"42")
        await producer.flush()
        print(answer.result().offset)

With acks=all a producer is idempotent: a batch that is sent again after a lost response is written once.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from penstock.client.accumulator import UNKNOWN_OFFSET, PartitionAccumulator, ProducerBatch, Published, record_bytes
from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import check
from penstock.client.partitioner import PARTITIONERS, StickyPartitioner
from penstock.foundation.clock import Clock, SystemClock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidTimestamp, PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.foundation.settings import LONG_MAX
from penstock.records.build import Record, build_batch
from penstock.records.compression import Codec
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.schema import Buffer

SEQUENCE_SPAN: Final = 2**31
PRODUCE_BY_NAME: Final = 12
"""The last version of Produce with topic names; later versions have only topic ids."""


class ProducerClosed(PenstockError):
    """The producer was closed before the record was sent."""


class Acks(IntEnum):
    NONE = 0
    LEADER = 1
    ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    acks: Acks = Acks.ALL
    codec: Codec = Codec.NONE
    linger_s: float = 0.005
    """How long, in seconds, a batch that is not full waits for more records."""
    batch_bytes: int = 128 << 10
    buffer_bytes_max: int = 32 << 20
    """Maximum bytes of records buffered and in flight; at this limit `send` waits."""
    delivery_timeout_s: float = 60.0
    """How long, in seconds, a batch is retried before it fails."""
    partitioner: str = "murmur2"
    """The function that maps a key to a partition; one of PARTITIONERS."""


class Producer:
    """A producer of records. Close it, or use `async with`."""

    def __init__(
        self, client: KafkaClient, settings: ProducerSettings | None = None, clock: Clock | None = None
    ) -> None:
        self._client = client
        self._settings = settings or ProducerSettings()
        self._clock = clock or SystemClock()
        self._accumulators: dict[TopicPartition, PartitionAccumulator] = {}
        self._sticky: dict[str, StickyPartitioner] = {}
        self._identity: tuple[int, int] | None = None
        self._identity_lock = asyncio.Lock()
        self._waiting: set[asyncio.Future[Published]] = set()
        self.buffered_bytes = 0
        """Bytes of records buffered or in flight."""
        self._space_freed = asyncio.Event()
        self._failure: PenstockError | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[Published]:
        """Buffers a record; waits only while the buffer is full. Returns a future of its partition and offset."""
        info = await self._client.topic(topic)
        timestamp_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        if not 0 <= timestamp_ms <= LONG_MAX:
            raise InvalidTimestamp(f"timestamp {timestamp_ms} is out of range; give milliseconds since 1970")
        record = Record(key=key, value=value, headers=tuple(headers), timestamp_ms=timestamp_ms)
        while self.buffered_bytes >= self._settings.buffer_bytes_max:
            self._space_freed.clear()
            await self._space_freed.wait()
        if self._is_closed:
            raise ProducerClosed("the producer is closed; create a new one")
        if partition is not None:
            partition_number = info.partition(partition).tp.partition
        elif key is not None:
            partition_number = PARTITIONERS[self._settings.partitioner](key, len(info.partitions))
        else:
            partition_number = self._sticky_of(topic).choose(list(info.partitions))
        future: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        size_bytes = record_bytes(record)
        self.buffered_bytes += size_bytes
        future.add_done_callback(lambda done: self._on_done(done, size_bytes))
        filled = self._accumulator_of(TopicPartition(topic, partition_number)).add(record, future)
        if filled and key is None and partition is None:
            self._sticky_of(topic).move_on(list(info.partitions))
        return future

    def _sticky_of(self, topic: str) -> StickyPartitioner:
        found = self._sticky.get(topic)
        if found is None:
            found = self._sticky[topic] = StickyPartitioner(self._client.rng)
        return found

    def _accumulator_of(self, tp: TopicPartition) -> PartitionAccumulator:
        accumulator = self._accumulators.get(tp)
        if accumulator is None:
            accumulator = self._accumulators[tp] = PartitionAccumulator(
                tp,
                batch_bytes=self._settings.batch_bytes,
                linger_s=self._settings.linger_s,
                deliver=self._deliver,
                on_end=self._on_accumulator_end,
            )
        return accumulator

    def _on_accumulator_end(self, task: asyncio.Task[None]) -> None:
        """Fails all pending records if a sending task ended with an error rather than by `close`."""
        cause = None if task.cancelled() else task.exception()
        if cause is not None:
            self._is_closed = True
            self._fail_waiting(ProducerClosed(f"the producer failed: {cause!r}; create a new one"))

    def _fail_waiting(self, error: PenstockError) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(error)

    def _on_done(self, future: asyncio.Future[Published], size_bytes: int) -> None:
        self._waiting.discard(future)
        self.buffered_bytes -= size_bytes
        self._space_freed.set()
        failure = None if future.cancelled() else future.exception()
        if isinstance(failure, PenstockError) and self._failure is None:
            self._failure = failure

    async def flush(self) -> None:
        """Sends all buffered records and waits for their responses. Raises the first error since the last flush."""
        for accumulator in self._accumulators.values():
            accumulator.send_now()
        if self._waiting:
            await asyncio.wait(set(self._waiting))
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Flushes the buffered records, then stops the producer."""
        try:
            await self.flush()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Stops the producer immediately; records that were not sent fail with ProducerClosed."""
        self._is_closed = True
        closed = ProducerClosed("the producer was closed before this record was sent")
        await asyncio.gather(*(accumulator.close(closed) for accumulator in self._accumulators.values()))
        self._fail_waiting(closed)

    # -- delivery

    async def _deliver(self, accumulator: PartitionAccumulator, batch: ProducerBatch) -> None:
        """Sends one batch, with retries for `delivery_timeout_s`. The next batch of the partition waits for it."""
        settings = self._settings
        encoded: list[bytearray] = []

        async def attempt() -> int:
            if not encoded:  # only once: a retry must be identical, byte for byte
                encoded.append(await self._encode(accumulator, batch))
            return await self._produce(accumulator.tp, encoded[0])

        try:
            base_offset = await self._client.retrying(
                attempt,
                topics=[accumulator.tp.topic],
                retry_lost=settings.acks is not Acks.NONE,
                retry_for_s=settings.delivery_timeout_s,
            )
        except PenstockError as error:
            if error.code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
                # Rejected as a whole, so its sequences are unused: the halves take them.
                accumulator.requeue(*batch.split())
                return
            # The broker may have counted this batch's sequences: continue with a new producer id.
            self._identity = None
            batch.fail(error)
        else:
            accumulator.next_sequence = (accumulator.next_sequence + len(batch.records)) % SEQUENCE_SPAN
            batch.succeed(accumulator.tp.partition, base_offset)

    async def _encode(self, accumulator: PartitionAccumulator, batch: ProducerBatch) -> bytearray:
        if self._settings.acks is not Acks.ALL:
            return build_batch(batch.records, codec=self._settings.codec)
        identity = await self._get_identity()
        if accumulator.identity != identity:
            accumulator.identity, accumulator.next_sequence = identity, 0
        producer_id, producer_epoch = identity
        return build_batch(
            batch.records,
            codec=self._settings.codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=accumulator.next_sequence,
        )

    async def _get_identity(self) -> tuple[int, int]:
        """Returns the producer id and epoch; the first call requests them from a broker."""
        async with self._identity_lock:
            if self._identity is None:
                self._identity = await new_producer_id(self._client)
            return self._identity

    async def _produce(self, tp: TopicPartition, batch: Buffer) -> int:
        """Sends a batch to the partition's leader, without retries. Returns the offset of its first record."""
        leader = await self._client.leader(tp)
        topic = self._client.view.topics[tp.topic]
        version_max = None if topic.has_id else PRODUCE_BY_NAME
        connection = await self._client.connection(leader.leader)
        request = ProduceRequest(
            acks=self._settings.acks,
            # Shorter than the request timeout: the broker answers with an error before the connection is closed.
            timeout_ms=self._client.request_timeout_ms * 2 // 3,
            topic_data=[
                TopicProduceData(
                    name=tp.topic,
                    topic_id=topic.topic_id,
                    partition_data=[PartitionProduceData(index=tp.partition, records=batch)],
                )
            ],
        )
        if self._settings.acks is Acks.NONE:
            await connection.send(request, version_max=version_max)
            return UNKNOWN_OFFSET
        response: ProduceResponse = await connection.request(request, version_max=version_max)
        result = response.responses[0].partition_responses[0]
        if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return UNKNOWN_OFFSET  # written before; the broker no longer knows its offset
        check(result.error_code, f"partition {tp}", result.error_message)
        return result.base_offset


async def new_producer_id(client: KafkaClient) -> tuple[int, int]:
    """Requests a new producer id and its epoch from a broker, without retries."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    response: InitProducerIdResponse = await client.request(Target.ANY, request)
    check(response.error_code, "a producer id")
    return response.producer_id, response.producer_epoch
