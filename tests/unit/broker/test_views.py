"""Views read at a broker: in slices, within limits, without duplicates; and views that are not read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.handlers.fetch import fetch
from penstock.broker.views import scan, view_fetch
from penstock.cluster.administration import create_view, delete_topic
from penstock.cluster.views import View
from penstock.foundation import time_slices
from penstock.foundation.clock import SystemClock
from penstock.foundation.codes import ErrorCode
from penstock.records.batch import HEADER_BYTES, assemble, batches, read_header
from penstock.records.build import Record, build_batch
from penstock.records.compression import Codec
from penstock.wire.frames import read_response
from penstock.wire.keys import ApiKey
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

from ..log.builders import NOW_MS
from ..replication.broker_state import World, deletion_of, world_at
from .brokers import Timers, broker_of

TOPIC, VIEW = "orders", "orders-eu"
VERSION = 12
LONG_MS = 20_000


class Harness:
    """A broker with a topic and a view of it."""

    def __init__(self, world: World, broker: Broker) -> None:
        self.world = world
        self.broker = broker
        self.partition = world.partition(TOPIC)

    @property
    def counts(self) -> Any:
        return self.broker.views.counts_of(VIEW)

    def write(self, *tags: bytes, value: bytes = b'{"n": 1}', codec: Codec = Codec.NONE) -> None:
        rows = [Record(key=None, value=value, timestamp_ms=NOW_MS, headers=(("tag", tag),)) for tag in tags]
        self.partition.append(build_batch(rows, codec=codec), NOW_MS)

    def begin(self, offset: int = 0, topic: str = VIEW, **options: Any) -> "Asked":
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=options.pop("room", 1 << 20))
        values = {"max_wait_ms": 0, "min_bytes": 1} | options
        asked = Asked()
        request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[wanted])], **values)
        assert fetch(request, asked.call, self.broker) is None
        return asked

    async def fetch(self, offset: int = 0, **options: Any) -> PartitionData:
        return await self.begin(offset, **options).answer()


class Asked:
    def __init__(self) -> None:
        self._answered = asyncio.Event()
        self.call = Call(ApiKey.FETCH, VERSION, 77, "test", 0.0, 0, "127.0.0.1:1", lambda call: self._answered.set())

    @property
    def is_answered(self) -> bool:
        return self._answered.is_set()

    async def answer(self) -> PartitionData:
        await asyncio.wait_for(self._answered.wait(), 60)
        assert self.call.parts is not None
        _, response = read_response(ApiKey.FETCH, VERSION, b"".join(self.call.parts)[4:])
        (topic,) = response.responses
        (found,) = topic.partitions
        assert isinstance(found, PartitionData)
        return found


def offsets_in(data: PartitionData) -> list[int]:
    """Of matches, and, as a negative number, where a marker moves the reader to."""
    found: list[int] = []
    for _, header in batches(data.records or b""):
        found.append(-header.next_offset if header.is_control else header.last_offset)
    return found


@asynccontextmanager
async def harness_at(
    folder: Path, where: str = "tag = 'eu'", idle_ms: int = 0, clock: Any = None
) -> AsyncIterator[Harness]:
    async with world_at(folder) as world:
        await world.create(TOPIC)
        world.clock = clock or SystemClock()
        broker = broker_of(world, Timers())
        view = View(view_id=b"\7" * 16, name=VIEW, topic_id=b"", of=TOPIC, where=where, idle_ms=idle_ms)
        await create_view(world.metadata, view)
        yield Harness(world, broker)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # there is nothing that tells of counters
            await asyncio.sleep(0.001)


async def test_a_fetch_that_waits_looks_at_nothing_twice(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(*[b"us"] * 100)
        asked = harness.begin(max_wait_ms=LONG_MS)
        await until(lambda: harness.counts.scanned == 100)
        harness.write(b"us", b"us")
        await until(lambda: harness.counts.scanned == 102)
        assert not asked.is_answered
        harness.write(b"us", b"eu", b"us")
        assert offsets_in(await asked.answer()) == [103, -105]
        assert (harness.counts.scanned, harness.counts.matched) == (105, 1)


async def test_a_reader_that_waits_in_vain_is_moved_on_when_its_time_is_up(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(b"us", b"us")
        assert offsets_in(await harness.fetch(max_wait_ms=50)) == [-2]
        found = await harness.fetch(2, max_wait_ms=50)
        assert (offsets_in(found), found.high_watermark) == ([], 2)  # and not again


async def test_one_fetch_looks_at_so_much_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(view_fetch, "SCAN_BYTES_MAX", 5000)
    async with harness_at(tmp_path) as harness:
        for _ in range(100):
            harness.write(*[b"us"] * 10)
        found = offsets_in(await harness.fetch(max_wait_ms=LONG_MS))
        assert len(found) == 1
        assert 0 < -found[0] < 500
        offset = fetches = 0
        while offset < 1000:
            # The last of them finds less than it may look at, and waits for more.
            (marker,) = offsets_in(await harness.fetch(offset, max_wait_ms=300))
            offset, fetches = -marker, fetches + 1
        assert fetches >= 4
        harness.write(b"eu")
        assert offsets_in(await harness.fetch(offset)) == [1000]


async def test_an_answer_has_no_more_than_the_reader_wants(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        for _ in range(20):
            harness.write(b"us", b"eu", value=b"x" * 1000)
        assert offsets_in(await harness.fetch(room=3000)) == [1, 3, 5]
        assert offsets_in(await harness.fetch(room=1)) == [1]  # the first comes whole
        assert offsets_in(await harness.fetch(3, max_bytes=1)) == [3]


@pytest.mark.parametrize("where", ["tag = 'eu'", "$.n = 1 AND $.m IS NULL"])
async def test_others_have_their_turn_while_a_view_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Each turn is over at once here: the loop must go round after every batch, or portion of one."""
    monkeypatch.setattr(time_slices, "SLICE_S", 0.0)
    async with harness_at(tmp_path, where) as harness:
        for _ in range(10):
            harness.write(*[b"us"] * 1024, codec=Codec.ZSTD, value=b'{"n": 2}')
        rounds = 0

        async def others() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        busy = asyncio.create_task(others())
        asked = [harness.begin(max_wait_ms=100) for _ in range(3)]
        for each in asked:
            assert offsets_in(await each.answer()) == [-10_240]
        busy.cancel()
        portions = 10 if "tag" in where else 40
        assert rounds >= 3 * portions
        assert harness.broker.views.slices.taken >= 3 * portions


async def test_a_disconnected_reader_is_forgotten(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(b"us")
        asked = harness.begin(max_wait_ms=LONG_MS)
        await until(lambda: harness.counts.scanned == 1)
        assert asked.call.on_disconnect is not None
        asked.call.on_disconnect()
        await until(lambda: not harness.broker.views.tasks)
        assert not asked.is_answered
        harness.write(b"eu")  # no fetch is woken
        assert offsets_in(await harness.fetch()) == [1]


async def test_nonsense_in_a_batch_is_passed_over_and_counted(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(b"eu")
        good = build_batch([Record(key=None, value=b"", timestamp_ms=NOW_MS)] * 3, codec=Codec.ZSTD)
        header = read_header(good)
        fields = {name: getattr(header, name) for name in header._fields if name not in ("length", "magic", "crc")}
        harness.partition.append(assemble(b"this is no frame of zstd", **fields), NOW_MS)
        harness.write(b"eu")
        assert offsets_in(await harness.fetch()) == [0, 4]
        assert harness.counts.unknown == 3


async def test_a_damaged_batch_is_reported_and_gets_no_new_checksum(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(b"eu", b"us")
        harness.write(b"eu", b"us")
        file = harness.partition.log.segments[-1].file
        file.write_at(file.size - 20, b"\xff")
        assert offsets_in(await harness.fetch()) == [0, -2]  # up to there
        assert (await harness.fetch(2)).error_code == ErrorCode.CORRUPT_MESSAGE


async def test_errors_are_returned_at_once(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(b"eu")
        assert (await harness.fetch(7, max_wait_ms=LONG_MS)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_batches_that_cannot_match_stay_closed(tmp_path: Path) -> None:
    async with harness_at(tmp_path, f"timestamp > {NOW_MS} AND tag = 'eu'") as harness:
        good = build_batch([Record(key=None, value=b"", timestamp_ms=NOW_MS)] * 3, codec=Codec.ZSTD)
        header = read_header(good)
        fields = {name: getattr(header, name) for name in header._fields if name not in ("length", "magic", "crc")}
        harness.partition.append(assemble(b"not decompressed", **fields), NOW_MS)
        assert len(good) > HEADER_BYTES
        assert offsets_in(await harness.fetch()) == [-3]
        assert (harness.counts.scanned, harness.counts.unknown) == (3, 0)


async def test_a_leader_that_is_replaced_meanwhile_returns_an_error(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.write(b"us")
        asked = harness.begin(max_wait_ms=LONG_MS)
        await until(lambda: harness.counts.scanned == 1)
        await harness.world.metadata.change(lambda image: deletion_of(image, TOPIC))
        found = await asked.answer()
        assert found.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


# -- views that go


async def test_a_view_is_removed_after_an_interrupted_deletion_of_its_topic(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.world.metadata.change(lambda image: deletion_of(image, TOPIC))
        assert harness.broker.image.views
        await harness.broker.views.check_all()
        assert not harness.broker.image.views


async def test_views_are_deleted_with_their_topic(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await delete_topic(harness.world.metadata, harness.broker.image.by_name[TOPIC].topic_id)
        assert not harness.broker.image.views


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    steady_ms = now_ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


async def test_a_view_is_dropped_when_it_was_not_read_for_long_enough(tmp_path: Path) -> None:
    clock = Hand()
    async with harness_at(tmp_path, idle_ms=60_000, clock=clock) as harness:
        views, view = harness.broker.views, next(iter(harness.broker.image.views.values()))
        await views.check_all()
        clock.ms += 50_000
        views.note_read(view)
        await views.check_all()  # the read is published to other brokers
        await views.check_all()
        assert harness.broker.image.views[view.view_id].touched == 1
        clock.ms += 59_000
        await views.check_all()
        assert harness.broker.image.views
        clock.ms += 1000
        await views.check_all()
        assert not harness.broker.image.views


async def test_a_view_that_is_read_at_another_broker_is_kept(tmp_path: Path) -> None:
    """Two brokers: one serves it, the other only sees that it is marked."""
    clock = Hand()
    async with harness_at(tmp_path, idle_ms=60_000, clock=clock) as harness:
        serving, watching = harness.broker.views, broker_of(harness.world, Timers()).views
        for _ in range(20):
            serving.note_read(next(iter(harness.broker.image.views.values())))
            await serving.check_all()
            await watching.check_all()
            clock.ms += 20_000
        assert harness.broker.image.views
        clock.ms += 60_000
        await watching.check_all()
        assert not harness.broker.image.views


async def test_a_broker_that_was_just_started_drops_nothing_yet(tmp_path: Path) -> None:
    clock = Hand()
    async with harness_at(tmp_path, idle_ms=60_000, clock=clock) as harness:
        clock.ms += 10 * 60_000
        await broker_of(harness.world, Timers()).views.check_all()
        assert harness.broker.image.views
