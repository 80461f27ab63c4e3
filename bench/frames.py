"""Requests encoded beforehand, and what a right answer to each of them looks like.

Produce and Fetch both go out as version 12, the last that names topics: Penstock and Apache Kafka serve it, and the
floor needs no table of topic ids.
"""

import random
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from bench.layout import Layout
from penstock.records.build import Record, build_batch
from penstock.wire.frames import request_frame, response_frame
from penstock.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSION: Final = 12
CLIENT_ID: Final = "bench"
SEED: Final = 20_240_601
TOPIC_NAME_BYTES: Final = 8
"""All topics have names of this length, so that things are always in the same place."""
_ENTRY: Final = struct.Struct("<IIii8s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one request carries."""

    name: str
    records: int
    value_bytes: int

    @property
    def is_single(self) -> bool:
        return self.records == 1

    @property
    def batch_bytes(self) -> int:
        return len(batch_of(self.records, self.value_bytes))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A request, and what is checked of its answer; see load.c."""

    data: bytes
    answer_bytes: int = 0
    error_at: int = -1
    check_at: int = -1
    check: bytes = bytes(8)

    def entry(self) -> bytes:
        return _ENTRY.pack(len(self.data), self.answer_bytes, self.error_at, self.check_at, self.check) + self.data


def save(frames: Iterable[Frame], path: Path) -> Path:
    path.write_bytes(b"".join([frame.entry() for frame in frames]))
    return path


@cache
def payload(size: int) -> bytes:
    """Bytes that no codec makes much smaller, the same in every run."""
    return random.Random(SEED).randbytes(size)


@cache
def batch_of(records: int, value_bytes: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    rows = [Record(key=None, value=payload(value_bytes), timestamp_ms=now_ms) for _ in range(records)]
    return bytes(build_batch(rows))


def _error_at(top_bytes: int) -> int:
    # correlation id, tags; what stands before the topics; then: topics, name, partitions, partition number
    return 4 + 1 + top_bytes + 1 + 1 + TOPIC_NAME_BYTES + 1 + 4


PRODUCE_ERROR_AT: Final = _error_at(0)
FETCH_ERROR_AT: Final = _error_at(4 + 2 + 4)


def produce_frame(topic: str, partition: int, shape: Shape, acks: int) -> Frame:
    assert len(topic) == TOPIC_NAME_BYTES
    data = PartitionProduceData(index=partition, records=batch_of(shape.records, shape.value_bytes))
    request = ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return Frame(data=b"".join(request_frame(request, VERSION, 1, CLIENT_ID)), error_at=PRODUCE_ERROR_AT)


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int) -> Frame:
    assert len(topic) == TOPIC_NAME_BYTES
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=55 << 20, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    return Frame(data=b"".join(request_frame(request, VERSION, 1, CLIENT_ID)), error_at=FETCH_ERROR_AT)


def floor_layout(topic: str, shape: Shape) -> Layout:
    """What the floor must know: where the batch is, and what the answers are."""
    batch = batch_of(shape.records, shape.value_bytes)
    produced = PartitionProduceResponse(index=0, error_code=0, base_offset=0, log_start_offset=0)
    topic_produced = TopicProduceResponse(name=topic, partition_responses=[produced])
    fetched = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=2**40,
        last_stable_offset=2**40,
        log_start_offset=0,
        aborted_transactions=None,
        records=batch,
    )
    topic_fetched = FetchableTopicResponse(topic=topic, partitions=[fetched])
    fetch_answer = b"".join(response_frame(FetchResponse(throttle_time_ms=0, responses=[topic_fetched]), VERSION, 0))
    marker = 0x0123_4567_89AB_CDEF
    batch_at = fetch_answer.index(batch)
    return Layout(
        batch_at=produce_frame(topic, 0, shape, 1).data.index(batch) - 4,
        batch_bytes=len(batch),
        batch_records=shape.records,
        produce_answer=b"".join(response_frame(ProduceResponse(responses=[topic_produced]), VERSION, 0)).hex(),
        base_offset_at=4 + PRODUCE_ERROR_AT + 2,
        fetch_offset_at=fetch_frame(topic, 0, marker, 1).data.index(marker.to_bytes(8)) - 4,
        fetch_head=fetch_answer[:batch_at].hex(),
        fetch_tail=fetch_answer[batch_at + len(batch) :].hex(),
    )
