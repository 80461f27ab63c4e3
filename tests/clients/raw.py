"""A client that sends what no library would: frames by our own codec, or any bytes."""

import socket
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.records.batch import BatchHeader, batches
from penstock.records.build import Record, build_batch, read_records
from penstock.wire.frames import LENGTH, read_response, request_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.schema import Buffer, message_of

from .drivers import NOW_MS

NAME = "raw"
TIMEOUT_S = 60.0
PRODUCE_VERSION = 9
FETCH_VERSION = 12
"""The newest versions that name topics; later ones have ids."""


class Closed(Exception):
    """The broker closed the connection."""


class RawClient:
    """One connection. `with RawClient(broker.address) as raw: raw.ask(request, version)`."""

    def __init__(self, address: tuple[str, int], receive_buffer_bytes: int = 0) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(address)
        self._next_id = 0
        self._asked: list[tuple[int, ApiKey, int]] = []

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: Any, version: int) -> None:
        """Send a request; `receive` then gives the answers in the order of the requests."""
        self._next_id += 1
        self._asked.append((self._next_id, message_of(type(request)).key, version))
        self.socket.sendall(b"".join(request_frame(request, version, self._next_id, NAME)))

    def expect(self, key: ApiKey, version: int, correlation_id: int) -> None:
        """A request that was sent by other means has to be answered."""
        self._asked.append((correlation_id, key, version))

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        expected_id, key, version = self._asked.pop(0)
        correlation_id, message = read_response(key, version, self.receive_frame())
        assert correlation_id == expected_id, "answers come in the order of the requests"
        return message

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    def receive_frame(self) -> bytes:
        (size,) = LENGTH.unpack(self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionResetError as error:
                raise Closed from error
            if not piece:
                raise Closed
            data += piece
        return bytes(data)

    def is_closed_by_the_broker(self) -> bool:
        """Whether the next thing to come from the broker is the end; waits for one or the other."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    # -- what many tests ask for

    def produce(
        self, topic: str, batch: Buffer | None, partition: int = 0, acks: int = -1
    ) -> PartitionProduceResponse:
        """Produce one batch, as its bytes are."""
        response = self.ask(produce_request(topic, batch, partition, acks), PRODUCE_VERSION)
        return response.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, partition: int = 0, **options: Any) -> Any:
        """What one partition is answered with."""
        response = self.ask(fetch_request(topic, {partition: offset}, **options), FETCH_VERSION)
        return response.responses[0].partitions[0]

    def batches(self, topic: str, offset: int = 0) -> list[tuple[BatchHeader, list[Record]]]:
        """Every batch from an offset to the end, however many fetches that takes."""
        found: list[tuple[BatchHeader, list[Record]]] = []
        while (data := self.fetch(topic, offset)).high_watermark > offset:
            assert data.error_code == 0, data
            for at, header in batches(data.records):
                found.append((header, read_records(data.records[at : at + header.size_bytes])))
                offset = header.next_offset
        return found

    def producer_id(self) -> int:
        answer = self.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert answer.error_code == 0
        return answer.producer_id

    def describe(self, topic: str, allow_auto_topic_creation: bool = False) -> Any:
        """One topic's metadata."""
        wanted = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=allow_auto_topic_creation
        )
        return self.ask(wanted, 12).topics[0]


def produce_request(topic: str, batch: Buffer | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(
    topic: str,
    offsets: dict[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 10 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[Any] = (),
    isolation_level: int = 0,
) -> FetchRequest:
    """A request for partitions of one topic, from the given offsets on; sessionless by default."""
    partitions = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for number, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=session_epoch,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, partitions=partitions)] if partitions else [],
        forgotten_topics_data=forgotten,
    )


def by_partition(response: FetchResponse) -> dict[int, Any]:
    """The partitions that an answer about one topic names."""
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


def batch_of(values: Iterable[bytes], *, timestamp_ms: int = NOW_MS, **options: Any) -> bytearray:
    """A batch of records without keys, a millisecond apart."""
    records = [Record(key=None, value=value, timestamp_ms=timestamp_ms + i) for i, value in enumerate(values)]
    return build_batch(records, **options)


def records_of(data: Buffer) -> list[Record]:
    """All records of the whole batches in a fetch's answer."""
    found: list[Record] = []
    for at, header in batches(data):
        found += read_records(memoryview(data)[at : at + header.size_bytes])
    return found
