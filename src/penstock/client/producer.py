"""Publishing: records are gathered into batches, one line for each partition.

    async with Producer(client) as producer:
        answer = await producer.send("orders", b"hello", key=b"42")
        await producer.flush()
        print(answer.result().offset)

With acks=all a producer is idempotent: a batch that is sent again because its answer was lost is kept once.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from penstock.client.accumulator import UNKNOWN_OFFSET, Draft, Lane, Published, record_bytes
from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import check
from penstock.client.partitioner import PARTITIONERS, Sticky
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
"""The last version of Produce that names topics; later ones have only ids."""


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
    """How long a batch that is not full waits for more."""
    batch_bytes: int = 128 << 10
    buffer_bytes_max: int = 32 << 20
    """Bytes that may wait to be sent; then `send` waits."""
    delivery_timeout_s: float = 60.0
    """How long a batch is tried before it fails."""
    partitioner: str = "murmur2"
    """One of PARTITIONERS: which partition a key goes to."""


class Producer:
    """See the top of this file."""

    def __init__(
        self, client: KafkaClient, settings: ProducerSettings | None = None, clock: Clock | None = None
    ) -> None:
        self._client = client
        self._settings = settings or ProducerSettings()
        self._clock = clock or SystemClock()
        self._lanes: dict[TopicPartition, Lane] = {}
        self._sticky: dict[str, Sticky] = {}
        self._identity: tuple[int, int] | None = None
        self._identifying = asyncio.Lock()
        self._waiting: set[asyncio.Future[Published]] = set()
        self.buffered_bytes = 0
        """What waits to be sent, or to be answered."""
        self._room = asyncio.Event()
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
        """Put a record in line; the future says where it went. Waits only while the buffer is full."""
        info = await self._client.topic(topic)
        timestamp_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        if not 0 <= timestamp_ms <= LONG_MAX:
            raise InvalidTimestamp(f"timestamp {timestamp_ms} is no time in ms since 1970")
        record = Record(key=key, value=value, headers=tuple(headers), timestamp_ms=timestamp_ms)
        while self.buffered_bytes >= self._settings.buffer_bytes_max:
            self._room.clear()
            await self._room.wait()
        if self._is_closed:
            raise ProducerClosed("the producer is closed; make another one")
        if partition is not None:
            number = info.partition(partition).name.partition
        elif key is not None:
            number = PARTITIONERS[self._settings.partitioner](key, len(info.partitions))
        else:
            number = self._sticky_of(topic).choose(list(info.partitions))
        answer: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        size_bytes = record_bytes(record)
        self.buffered_bytes += size_bytes
        answer.add_done_callback(lambda done: self._on_done(done, size_bytes))
        filled = self._lane(TopicPartition(topic, number)).add(record, answer)
        if filled and key is None and partition is None:
            self._sticky_of(topic).move_on(list(info.partitions))
        return answer

    def _sticky_of(self, topic: str) -> Sticky:
        found = self._sticky.get(topic)
        if found is None:
            found = self._sticky[topic] = Sticky(self._client.rng)
        return found

    def _lane(self, name: TopicPartition) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(
                name,
                batch_bytes=self._settings.batch_bytes,
                linger_s=self._settings.linger_s,
                deliver=self._deliver,
                on_end=self._on_lane_end,
            )
        return lane

    def _on_lane_end(self, task: asyncio.Task[None]) -> None:
        """A lane ends when it is closed. If anything else ended it, nobody must wait for what it held."""
        cause = None if task.cancelled() else task.exception()
        if cause is not None:
            self._is_closed = True
            self._fail_waiting(ProducerClosed(f"the producer broke: {cause!r}; make another one"))

    def _fail_waiting(self, error: PenstockError) -> None:
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_exception(error)

    def _on_done(self, answer: asyncio.Future[Published], size_bytes: int) -> None:
        self._waiting.discard(answer)
        self.buffered_bytes -= size_bytes
        self._room.set()
        failure = None if answer.cancelled() else answer.exception()
        if isinstance(failure, PenstockError) and self._failure is None:
            self._failure = failure

    async def flush(self) -> None:
        """Send everything and wait for the answers. Raises the first failure since the last flush, if any."""
        for lane in self._lanes.values():
            lane.hurry()
        if self._waiting:
            await asyncio.wait(set(self._waiting))
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Flush, then stop."""
        try:
            await self.flush()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Stop at once; what was not sent yet fails with ProducerClosed."""
        self._is_closed = True
        closed = ProducerClosed("the producer was closed before this record was sent")
        await asyncio.gather(*(lane.close(closed) for lane in self._lanes.values()))
        self._fail_waiting(closed)

    # -- delivery

    async def _deliver(self, lane: Lane, draft: Draft) -> None:
        """Send one batch until it is kept or cannot be. The next one of the partition waits."""
        settings = self._settings
        encoded: list[bytearray] = []

        async def attempt() -> int:
            if not encoded:  # once only: what is sent again must be the same, byte for byte
                encoded.append(await self._encode(lane, draft))
            return await self._produce(lane.name, encoded[0])

        try:
            base_offset = await self._client.retrying(
                attempt,
                topics=[lane.name.topic],
                repeat_lost=settings.acks is not Acks.NONE,
                retry_for_s=settings.delivery_timeout_s,
            )
        except PenstockError as error:
            if error.code == ErrorCode.MESSAGE_TOO_LARGE and len(draft.records) > 1:
                # Refused as a whole, so its sequences are free: the halves take them.
                lane.put_back(*draft.split())
                return
            # Whether the broker counted this batch's sequences is not certain: begin anew under another identity.
            self._identity = None
            draft.fail(error)
        else:
            lane.next_sequence = (lane.next_sequence + len(draft.records)) % SEQUENCE_SPAN
            draft.succeed(lane.name.partition, base_offset)

    async def _encode(self, lane: Lane, draft: Draft) -> bytearray:
        if self._settings.acks is not Acks.ALL:
            return build_batch(draft.records, codec=self._settings.codec)
        identity = await self._identify()
        if lane.identity != identity:
            lane.identity, lane.next_sequence = identity, 0
        producer_id, producer_epoch = identity
        return build_batch(
            draft.records,
            codec=self._settings.codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=lane.next_sequence,
        )

    async def _identify(self) -> tuple[int, int]:
        """This producer's id and epoch; asked for when first needed."""
        async with self._identifying:
            if self._identity is None:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
                response: InitProducerIdResponse = await self._client.request(Target.ANY, request)
                check(response.error_code, "a producer id")
                self._identity = response.producer_id, response.producer_epoch
            return self._identity

    async def _produce(self, name: TopicPartition, batch: Buffer) -> int:
        """Send a batch to its leader, once; the offset of its first record."""
        leader = await self._client.leader(name)
        topic = self._client.view.topics[name.topic]
        newest = None if topic.has_id else PRODUCE_BY_NAME
        connection = await self._client.connection(leader.leader)
        request = ProduceRequest(
            acks=self._settings.acks,
            # The broker gives up first, and says so, before the connection is given up.
            timeout_ms=int(self._client.settings.connection.request_timeout_s * 1000) * 2 // 3,
            topic_data=[
                TopicProduceData(
                    name=name.topic,
                    topic_id=topic.topic_id,
                    partition_data=[PartitionProduceData(index=name.partition, records=batch)],
                )
            ],
        )
        if self._settings.acks is Acks.NONE:
            await connection.send(request, newest=newest)
            return UNKNOWN_OFFSET
        response: ProduceResponse = await connection.request(request, newest=newest)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return UNKNOWN_OFFSET  # kept before; the broker no longer knows where
        check(answer.error_code, f"partition {name}", answer.error_message)
        return answer.base_offset
