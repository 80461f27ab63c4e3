"""Compressed batches decompressed in parallel: all, in order, in bounded memory that no other reader overwrites."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from penstock.broker.views import decompression
from penstock.broker.views.decompression import Arena, Arenas, Decompression, FoundBatch
from penstock.foundation.errors import CorruptMessage, MessageTooLarge, PenstockError
from penstock.records.batch import batches
from penstock.records.build import Record, build_batch
from penstock.records.columns import decompress_body
from penstock.records.compression import Codec

CODECS = tuple(Codec)

BODY_MAX = 64 << 20


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def log_of(count: int, *, codec: Codec = Codec.ZSTD, value_bytes: int = 1000) -> memoryview:
    """Batches of ten records each."""
    parts = [
        build_batch(
            [
                Record(key=None, value=b"%06d" % (10 * number + each) + bytes(value_bytes), timestamp_ms=1)
                for each in range(10)
            ],
            base_offset=10 * number,
            codec=codec,
        )
        for number in range(count)
    ]
    return memoryview(b"".join(parts))


def found_in(data: memoryview) -> list[FoundBatch]:
    return [FoundBatch(at, header, must_open=True) for at, header in batches(data)]


async def read_all(arenas: Arenas, data: memoryview) -> tuple[list[bytes | PenstockError], int]:
    """All bodies, and in how many pieces they came."""
    found, bodies, pieces = found_in(data), list[bytes | PenstockError](), 0
    while len(bodies) < len(found):
        async with arenas.decompressed(data, found[len(bodies) :], BODY_MAX) as decompressed:
            pieces += 1
            some = [body if isinstance(body, PenstockError) else bytes(body) for body in decompressed.bodies()]
        assert some, "at least one each time"
        bodies += some
    return bodies, pieces


def expected(data: memoryview) -> list[bytes]:
    return [bytes(decompress_body(each.of(data), each.header)) for each in found_in(data)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("arena_bytes", [11_000, 25_000, 1 << 20], ids=["one-each", "two-each", "all-at-once"])
def test_all_bodies_come_in_order_however_little_room_there_is(
    monkeypatch: pytest.MonkeyPatch, threads: Executor, codec: Codec, arena_bytes: int
) -> None:
    monkeypatch.setattr(decompression, "ARENA_BYTES", arena_bytes)
    data = log_of(25, codec=codec)
    bodies, pieces = asyncio.run(read_all(Arenas(threads), data))
    assert bodies == expected(data)
    if codec is Codec.NONE or arena_bytes == 1 << 20:
        assert pieces == 1  # what is not compressed is not copied
    else:
        assert pieces >= 25 // (3 * decompression.ARENAS)


def test_a_body_larger_than_an_arena_gets_memory_of_its_own(
    monkeypatch: pytest.MonkeyPatch, threads: Executor
) -> None:
    monkeypatch.setattr(decompression, "ARENA_BYTES", 5000)
    data = log_of(7)
    assert asyncio.run(read_all(Arenas(threads), data))[0] == expected(data)


@pytest.mark.parametrize("damaged", [0, 3, 6])
def test_a_damaged_body_is_reported_in_its_place_and_delays_no_other(threads: Executor, damaged: int) -> None:
    data = log_of(7)
    whole = expected(data)
    broken = bytearray(data)
    place = found_in(data)[damaged]
    broken[place.at + 70 : place.at + 80] = bytes(10)
    bodies, _ = asyncio.run(read_all(Arenas(threads), memoryview(broken)))
    assert isinstance(bodies[damaged], CorruptMessage)
    assert bodies[:damaged] == whole[:damaged]
    assert bodies[damaged + 1 :] == whole[damaged + 1 :]


def test_a_returned_body_is_not_overwritten_by_the_next_reader(threads: Executor) -> None:
    """Two readers at a time have an arena each; a third one waits until one of them is done."""

    async def work() -> None:
        arenas = Arenas(threads)
        one, two, three = log_of(1), log_of(2, value_bytes=500), log_of(3, value_bytes=200)
        async with arenas.decompressed(one, found_in(one), BODY_MAX) as first:
            bodies = list(first.bodies())
            async with arenas.decompressed(two, found_in(two)[:1], BODY_MAX) as second:
                others = list(second.bodies())
                third = asyncio.create_task(read_all(arenas, three))
                done, _ = await asyncio.wait({third}, timeout=0.1)
                assert not done
                assert [bytes(body) for body in others if not isinstance(body, PenstockError)] == expected(two)[:1]
            assert (await third)[0] == expected(three)
            assert [bytes(body) for body in bodies if not isinstance(body, PenstockError)] == expected(one)

    asyncio.run(work())


class Held(Executor):
    """Begins nothing until it is let."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []
        self.called = asyncio.Event()

    def submit(self, work: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, work, arguments))
        self.called.set()
        return future

    def let_go(self) -> None:
        for future, work, arguments in self.waiting:
            work(*arguments)
            future.set_result(None)
        self.waiting.clear()


def test_an_arena_whose_reader_is_gone_is_free_when_its_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "ARENAS", 1)

    async def work() -> None:
        held = Held()
        arenas, data = Arenas(held), log_of(3)
        gone = asyncio.create_task(read_all(arenas, data))
        await held.called.wait()
        gone.cancel()
        await asyncio.wait({gone})
        next_one = asyncio.create_task(read_all(arenas, data))
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(held.waiting) == 1, "the arena is not given to another while the thread may write to it"
        while not next_one.done():
            held.let_go()
            await asyncio.sleep(0)
        assert next_one.result()[0] == expected(data)

    asyncio.run(work())


def test_several_threads_share_the_work(threads: Executor) -> None:
    data = log_of(40)
    began = threading.Barrier(2)
    shared = Decompression(data, found_in(data), BODY_MAX)

    def work() -> None:
        began.wait(10)
        shared.work(Arena())

    for future in [threads.submit(work), threads.submit(work)]:
        future.result(10)
    assert [bytes(body) for body in shared.bodies() if not isinstance(body, PenstockError)] == expected(data)


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP])
def test_a_body_above_the_limit_is_refused_though_it_would_fit_the_arena(codec: Codec) -> None:
    data = log_of(1, codec=codec)
    ((_, header),) = batches(data)
    arena = Arena()
    size = len(decompress_body(data, header))
    assert arena.open(data, header, size) is not None
    arena.clear()
    with pytest.raises(MessageTooLarge):
        arena.open(data, header, size - 1)
