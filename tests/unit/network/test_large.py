"""Where requests that do not fit the shared buffer are received."""

from typing import Any

import pytest

from penstock.cluster.image import ClusterImage
from penstock.network.kafka import KafkaListener
from penstock.network.large import BUFFERS_MAX, FIRST_BYTES, RECEIVE_BYTES, Buffers, LargeRequest


class Settings(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 1 << 30


class Answers:
    """As much of a broker as a listener looks at before the first request."""

    configs = Settings()
    image = ClusterImage()


@pytest.fixture
def listener() -> KafkaListener:
    broker: Any = Answers()
    probe: Any = None
    return KafkaListener(broker, probe)


def pattern(size: int, seed: int = 0) -> bytes:
    return bytes((number * 7 + seed) % 251 for number in range(size))


def fill(large: LargeRequest, data: bytes, step: int) -> memoryview:
    """Receive `data` in steps; the whole request."""
    at = 0
    while True:
        room = large.room()
        count = min(step, len(room), len(data) - at)
        room[:count] = data[at : at + count]
        at += count
        whole = large.add(count)
        if whole is not None:
            assert at == len(data)
            return whole


def test_a_request_is_completed_where_it_began(listener: KafkaListener) -> None:
    shared = listener.receive_buffer
    frame = pattern(100_000)
    shared[500:1500] = frame[:1000]
    listener.budget.borrow(len(frame), lambda count: None)
    large = listener.receive_large(len(frame), shared, 500, 1500)
    assert listener.receive_buffer is not shared, "others must not read into a buffer that is in use"
    whole = fill(large, frame[1000:], 30_000)
    assert whole == frame
    assert whole.obj is shared.obj
    listener.release(large)
    assert listener.budget.lent_bytes == 0


def test_a_request_that_would_pass_the_buffer_is_moved(listener: KafkaListener) -> None:
    shared = listener.receive_buffer
    frame = pattern(100_000)
    shared[-10:] = frame[:10]
    listener.budget.borrow(len(frame), lambda count: None)
    large = listener.receive_large(len(frame), shared, len(shared) - 10, len(shared))
    assert listener.receive_buffer is shared
    assert fill(large, frame[10:], 1 << 20) == frame


def test_buffers_are_used_again_and_their_number_is_bounded(listener: KafkaListener) -> None:
    frames = [pattern(50_000, seed) for seed in range(BUFFERS_MAX + 10)]
    large = []
    for frame in frames:
        listener.budget.borrow(len(frame), lambda count: None)
        shared = listener.receive_buffer
        shared[:100] = frame[:100]
        large.append(listener.receive_large(len(frame), shared, 0, 100))
    assert sum(request.borrowed is not None for request in large) == BUFFERS_MAX
    for frame, request in zip(frames, large, strict=True):
        assert fill(request, frame[100:], 20_000) == frame
    before = {id(request.borrowed.obj) for request in large if request.borrowed is not None}
    before.add(id(listener.receive_buffer.obj))
    for request in large:
        listener.release(request)
    for frame in frames[:BUFFERS_MAX]:
        shared = listener.receive_buffer
        again = listener.receive_large(len(frame), shared, 0, 100)
        assert again.borrowed is not None
        assert id(again.borrowed.obj) in before


def taken(buffers: Buffers, count: int) -> list[memoryview]:
    found = [buffers.take() for _ in range(count)]
    return [buffer for buffer in found if buffer is not None]


def test_buffers_that_nobody_needs_are_let_go() -> None:
    buffers = Buffers()
    first = taken(buffers, 8)
    for buffer in first:
        buffers.give(buffer)
    buffers.shrink()  # all were needed since the last time
    again = taken(buffers, 3)
    assert {id(buffer) for buffer in again} <= {id(buffer) for buffer in first}
    for buffer in again:
        buffers.give(buffer)
    buffers.shrink()  # five were not
    found = taken(buffers, BUFFERS_MAX + 5)
    assert sum(any(buffer is one for one in first) for buffer in found) == 3
    assert len(found) == BUFFERS_MAX + 1, "others may take their place"


def test_a_request_larger_than_any_buffer_grows_with_what_arrives(listener: KafkaListener) -> None:
    size = 2 * FIRST_BYTES + 12345
    frame = bytes(size - 1) + b"\x01"
    listener.budget.borrow(size, lambda count: None)
    large = listener.receive_large(size, memoryview(frame), 0, 10)
    assert len(large.room()) == FIRST_BYTES - 10, "a length that was announced costs nothing by itself"
    assert fill(large, frame[10:], 1 << 20) == frame
    assert size > RECEIVE_BYTES
    assert large.borrowed is None
