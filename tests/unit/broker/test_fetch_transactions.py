"""Transactions in Fetch, ListOffsets and DescribeProducers: by the handlers and by the fast path."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.fastpath.produce_and_fetch import FetchFastPath
from penstock.broker.handlers.describe_producers import describe_producers
from penstock.broker.handlers.fetch import fetch
from penstock.broker.handlers.list_offsets import list_offsets
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.records.batch import batches
from penstock.replication.partition import Partition
from penstock.wire.frames import read_response, request_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

from ..log.builders import NOW_MS, batch, records_in, sent
from ..replication.broker_state import world_at
from .brokers import Timers, broker_of

TOPIC = "orders"
VERSION = 12
UNCOMMITTED, COMMITTED = 0, 1
LATEST, MAX_TIMESTAMP = -1, -3


class Harness:
    """A broker with one topic of one partition."""

    def __init__(self, broker: Broker, partition: Partition, timers: Timers) -> None:
        self.broker = broker
        self.partition = partition
        self.timers = timers
        self._sequences: dict[ProducerKey, int] = {}

    def plain(self, value: bytes, timestamp_ms: int = NOW_MS) -> int:
        return self.partition.append(batch(value, timestamp_ms=timestamp_ms), NOW_MS).base_offset

    def write(self, producer_id: int, value: bytes, epoch: int = 0, timestamp_ms: int = NOW_MS) -> int:
        key = ProducerKey(producer_id, epoch)
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = sequence + 1
        data = sent(producer_id, sequence, value, epoch=epoch, transactional=True, timestamp_ms=timestamp_ms)
        return self.partition.append(data, NOW_MS, may_begin=True).base_offset

    def end(self, producer_id: int, commit: bool, epoch: int = 0, coordinator: int = 0) -> int:
        key = ProducerKey(producer_id, epoch)
        return self.partition.write_marker(key, commit, coordinator, NOW_MS).base_offset

    def call(self, api: ApiKey, version: int) -> "Waiting":
        return Waiting(api, version)

    def fetch(self, offset: int, isolation: int = COMMITTED, **options: Any) -> PartitionData:
        answer = self.try_fetch(offset, isolation, **options)
        assert isinstance(answer, PartitionData), "the request waits"
        return answer

    def try_fetch(self, offset: int, isolation: int = COMMITTED, **options: Any) -> "PartitionData | Waiting":
        """The answer, or the waiting call."""
        waiting = self.call(ApiKey.FETCH, VERSION)
        response = fetch(request_for(offset, isolation, **options), waiting.call, self.broker)
        if response is None:
            return waiting
        waiting.call.answer(response)
        return waiting.partition()

    def fetch_fast(self, offset: int, isolation: int = COMMITTED, **options: Any) -> PartitionData | None:
        """The response of the fast path to a known request; None if it leaves this one to the handler."""
        fast_path = FetchFastPath(VERSION)
        known = request_for(10**9, isolation, **options)
        fast_path.learn(memoryview(frame_of(known)), known, self.broker)
        frame = frame_of(request_for(offset, isolation, **options))
        out: list[Any] = []
        size = fast_path.handle(memoryview(frame), 0, len(frame), 77, out)
        if not size:
            assert not out
            return None
        raw = b"".join(out)
        assert len(raw) == size
        return partition_in(raw)

    async def offset(self, timestamp: int, isolation: int = COMMITTED) -> tuple[int, int]:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])],
        )
        found = list_offsets(request, self.call(ApiKey.LIST_OFFSETS, 7).call, self.broker)
        (topic,) = (found if isinstance(found, ListOffsetsResponse) else await found).topics
        (found,) = topic.partitions
        return found.error_code, found.offset


class Waiting:
    """A call, and its answer when it has come."""

    def __init__(self, api: ApiKey, version: int) -> None:
        self.call = Call(api, version, 77, "test", 0.0, 0, "127.0.0.1:1", lambda call: None)

    @property
    def is_answered(self) -> bool:
        return self.call.parts is not None

    def partition(self) -> PartitionData:
        assert self.call.parts is not None
        return partition_in(b"".join(self.call.parts))


def partition_in(raw: bytes) -> PartitionData:
    correlation_id, response = read_response(ApiKey.FETCH, VERSION, raw[4:])
    assert (correlation_id, response.error_code) == (77, 0)
    (topic,) = response.responses
    (found,) = topic.partitions
    assert isinstance(found, PartitionData)
    return found


def request_for(
    offset: int, isolation: int, *, max_bytes: int = 100_000, min_bytes: int = 1, max_wait_ms: int = 0
) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
    )


def frame_of(request: FetchRequest) -> bytes:
    return b"".join(request_frame(request, VERSION, 77, "test"))[4:]


@asynccontextmanager
async def harness_at(folder: Path, **configs: object) -> AsyncIterator[Harness]:
    async with world_at(folder) as world:
        await world.create(TOPIC, **configs)
        timers = Timers()
        yield Harness(broker_of(world, timers), world.partition(TOPIC), timers)


def values(found: PartitionData) -> list[bytes | None]:
    data = bytes(found.records or b"")
    plain = b"".join(data[at : at + header.size_bytes] for at, header in batches(data) if not header.is_control)
    return [record.value for record in records_in(plain)]


def aborted(found: PartitionData) -> list[tuple[int, int]]:
    assert found.aborted_transactions is not None
    return [(entry.producer_id, entry.first_offset) for entry in found.aborted_transactions]


# -- Fetch


async def test_readers_of_committed_records_get_only_what_is_decided(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.plain(b"a")
        harness.write(7, b"b")
        harness.plain(b"c")
        for offset, expected in ((0, [b"a"]), (1, []), (2, []), (3, [])):
            found = harness.fetch(offset)
            assert values(found) == expected
            assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 1)
            assert aborted(found) == []
        harness.end(7, True)
        found = harness.fetch(0)
        assert values(found) == [b"a", b"b", b"c"]
        assert (found.high_watermark, found.last_stable_offset) == (4, 4)


async def test_read_uncommitted_gets_everything_and_the_last_stable_offset_too(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.plain(b"a")
        harness.write(7, b"b")
        for found in (harness.fetch(0, UNCOMMITTED), harness.fetch_fast(0, UNCOMMITTED)):
            assert found is not None
            assert values(found) == [b"a", b"b"]
            assert (found.high_watermark, found.last_stable_offset, found.aborted_transactions) == (2, 1, None)


async def test_aborted_transactions_are_listed_for_exactly_the_range_of_the_response(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        for number in range(4):
            harness.write(7, b"%0200d" % number)
            harness.plain(b"%0200d" % number)
            harness.end(7, number % 2 == 1)
        assert aborted(harness.fetch(0)) == [(7, 0), (7, 6)]
        assert aborted(harness.fetch(0, max_bytes=1)) == [(7, 0)]
        assert aborted(harness.fetch(1, max_bytes=1)) == [(7, 0)], "its marker comes yet"
        assert aborted(harness.fetch(2, max_bytes=1)) == [(7, 0)]
        assert aborted(harness.fetch(3, max_bytes=1)) == []
        assert aborted(harness.fetch(3)) == [(7, 6)]
        assert aborted(harness.fetch(9)) == []
        assert aborted(harness.fetch(12)) == []


async def test_aborted_transactions_are_named_in_the_order_in_which_they_begin(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        for producer_id in (5, 6, 7):
            harness.write(producer_id, b"v")
        for producer_id in (7, 5, 6):
            harness.end(producer_id, False)
        assert aborted(harness.fetch(0)) == [(5, 0), (6, 1), (7, 2)]


async def test_an_offset_outside_the_log_is_refused_to_every_reader(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(7, b"v")
        for isolation in (UNCOMMITTED, COMMITTED):
            assert harness.fetch(2, isolation).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_unknown_isolation_level_is_refused(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.plain(b"a")
        waiting = harness.call(ApiKey.FETCH, VERSION)
        response: Any = fetch(request_for(0, 2), waiting.call, harness.broker)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert harness.fetch_fast(0, 2) is None
        assert await harness.offset(LATEST, 2) == (ErrorCode.INVALID_REQUEST, -1)


async def test_a_reader_that_waits_for_committed_records_gets_them_with_the_marker(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(7, b"a")
        waiting = harness.try_fetch(0, max_wait_ms=1000)
        assert isinstance(waiting, Waiting)
        harness.plain(b"b")
        harness.timers.fire()
        assert not waiting.is_answered, "there is more, but nothing is decided"
        harness.end(7, False)
        harness.timers.fire()
        assert waiting.is_answered
        assert aborted(waiting.partition()) == [(7, 0)]


async def test_bytes_that_are_not_decided_do_not_count_as_enough(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.plain(b"a")
        harness.write(7, b"x" * 5000)
        assert isinstance(harness.try_fetch(0, min_bytes=1000, max_wait_ms=1000), Waiting)
        assert not isinstance(harness.try_fetch(0, UNCOMMITTED, min_bytes=1000, max_wait_ms=1000), Waiting)


async def test_when_its_time_is_up_a_reader_gets_what_is_decided(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(7, b"a")
        waiting = harness.try_fetch(0, max_wait_ms=1000)
        assert isinstance(waiting, Waiting)
        harness.timers.fire(waits=True)
        found = waiting.partition()
        assert (found.records, found.last_stable_offset, found.high_watermark) == (b"", 0, 1)


async def test_with_group_flushes_a_marker_counts_when_it_is_flushed(tmp_path: Path) -> None:
    async with harness_at(tmp_path, flush="group") as harness:
        harness.write(7, b"a")
        harness.end(7, True)
        harness.partition.advance(1)
        assert (harness.fetch(0).last_stable_offset, harness.fetch(0).records) == (0, b"")
        harness.partition.advance(2)
        assert values(harness.fetch(0)) == [b"a"]


# -- the fast path


async def test_the_fast_path_serves_read_committed_where_nothing_was_aborted(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.plain(b"a")
        found = harness.fetch_fast(0)
        assert found is not None
        assert (values(found), aborted(found), found.last_stable_offset) == ([b"a"], [], 1)
        harness.write(7, b"b")
        harness.end(7, True)
        harness.write(7, b"open")
        found = harness.fetch_fast(0)
        assert found is not None
        assert (values(found), found.last_stable_offset, found.high_watermark) == ([b"a", b"b"], 3, 4)
        assert harness.fetch_fast(3) is None, "there is nothing yet: the handler waits"


async def test_the_fast_path_leaves_aborted_transactions_to_the_handler(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(7, b"a")
        marker = harness.end(7, False)
        harness.plain(b"b")
        for offset in range(marker + 1):
            assert harness.fetch_fast(offset) is None
            assert harness.fetch_fast(offset, UNCOMMITTED) is not None
        found = harness.fetch_fast(marker + 1)
        assert found is not None
        assert values(found) == [b"b"]


@pytest.mark.parametrize("seed", range(8))
async def test_the_fast_path_and_the_handler_return_the_same(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    async with harness_at(tmp_path, segment_bytes=1024) as harness:
        served = 0
        for step in range(120):
            producer_id = rng.randint(1, 4)
            match rng.choice(("plain", "write", "write", "end", "end")):
                case "plain":
                    harness.plain(b"%0*d" % (rng.choice((1, 200)), step))
                case "write":
                    harness.write(producer_id, b"%d" % step)
                case _:
                    harness.end(producer_id, rng.random() < 0.7)
            offset = rng.randint(0, harness.partition.high_watermark)
            isolation, max_bytes = rng.choice((UNCOMMITTED, COMMITTED)), rng.choice((1, 300, 100_000))
            found = harness.fetch_fast(offset, isolation, max_bytes=max_bytes)
            if found is not None:
                assert found == harness.fetch(offset, isolation, max_bytes=max_bytes)
                served += 1
        assert served > 40


# -- ListOffsets


async def test_the_end_of_the_log_is_the_last_stable_offset_to_readers_of_committed_records(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.plain(b"a")
        harness.write(7, b"b")
        assert await harness.offset(LATEST, UNCOMMITTED) == (0, 2)
        assert await harness.offset(LATEST, COMMITTED) == (0, 1)
        harness.end(7, False)
        assert await harness.offset(LATEST, COMMITTED) == (0, 3)


async def test_no_time_is_found_behind_the_last_stable_offset(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.plain(b"a", timestamp_ms=NOW_MS)
        harness.write(7, b"b", timestamp_ms=NOW_MS + 10)
        assert await harness.offset(NOW_MS, COMMITTED) == (0, 0)
        assert await harness.offset(NOW_MS + 5, UNCOMMITTED) == (0, 1)
        assert await harness.offset(NOW_MS + 5, COMMITTED) == (0, -1)
        assert await harness.offset(MAX_TIMESTAMP, UNCOMMITTED) == (0, 1)
        assert await harness.offset(MAX_TIMESTAMP, COMMITTED) == (0, -1), "as Kafka does"
        harness.end(7, True)
        assert await harness.offset(NOW_MS + 5, COMMITTED) == (0, 1)
        assert await harness.offset(MAX_TIMESTAMP, COMMITTED) == (0, 1)


# -- DescribeProducers


async def test_open_transactions_are_described(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.plain(b"a")
        harness.write(7, b"b")
        harness.end(7, True, epoch=1, coordinator=4)
        first = harness.write(7, b"c", epoch=1)
        harness.write(8, b"d")
        harness.end(8, False, coordinator=5)
        request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])])
        response = await describe_producers(request, harness.call(ApiKey.DESCRIBE_PRODUCERS, 0).call, harness.broker)
        (topic,) = response.topics
        (partition,) = topic.partitions
        found = {
            state.producer_id: (
                state.producer_epoch,
                state.last_sequence,
                state.coordinator_epoch,
                state.current_txn_start_offset,
            )
            for state in partition.active_producers
        }
        assert found == {7: (1, 0, 4, first), 8: (0, 0, 5, -1)}
