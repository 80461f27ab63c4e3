"""Buffers of requests that do not fit the shared buffer."""

from typing import Any

import pytest

from penstock.broker.client_limits import ClientQuotas
from penstock.cluster.image import ClusterImage
from penstock.network.kafka_listener import KafkaListener
from penstock.network.large_request import BUFFERS_MAX, RATE_MIN, RATE_S, RECEIVE_BYTES, BufferPool, LargeRequest


class Settings(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 1 << 30


class Answers:
    """As much of a broker as a listener looks at before the first request."""

    configs = Settings()
    image = ClusterImage()
    quotas = ClientQuotas(dict)


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
        next_buffer = large.next_buffer()
        count = min(step, len(next_buffer), len(data) - at)
        next_buffer[:count] = data[at : at + count]
        at += count
        large.add(count)
        whole = large.frame
        if whole is not None:
            assert at == len(data)
            return whole


def test_a_request_is_completed_where_it_began(listener: KafkaListener) -> None:
    shared = listener.receive_buffer
    frame = pattern(100_000)
    shared[500:1500] = frame[:1000]
    large = listener.receive_large(len(frame), shared, 500, 1500, _nothing)
    assert listener.receive_buffer is not shared, "others must not read into a buffer that is in use"
    whole = fill(large, frame[1000:], 30_000)
    assert whole == frame
    assert whole.obj is shared.obj
    listener.release(large)
    large.reservation.close()
    assert listener.budget.held_bytes == 0


def test_a_request_that_would_pass_the_buffer_is_moved(listener: KafkaListener) -> None:
    shared = listener.receive_buffer
    frame = pattern(100_000)
    shared[-10:] = frame[:10]
    large = listener.receive_large(len(frame), shared, len(shared) - 10, len(shared), _nothing)
    assert listener.receive_buffer is shared
    assert fill(large, frame[10:], 1 << 20) == frame


def test_buffers_are_used_again_and_their_number_is_bounded(listener: KafkaListener) -> None:
    frames = [pattern(50_000, seed) for seed in range(BUFFERS_MAX + 10)]
    large = []
    for frame in frames:
        shared = listener.receive_buffer
        shared[:100] = frame[:100]
        large.append(listener.receive_large(len(frame), shared, 0, 100, _nothing))
    assert sum(request.borrowed is not None for request in large) == BUFFERS_MAX
    for frame, request in zip(frames, large, strict=True):
        assert fill(request, frame[100:], 20_000) == frame
    before = {id(request.borrowed.obj) for request in large if request.borrowed is not None}
    before.add(id(listener.receive_buffer.obj))
    for request in large:
        listener.release(request)
    for frame in frames[:BUFFERS_MAX]:
        shared = listener.receive_buffer
        again = listener.receive_large(len(frame), shared, 0, 100, _nothing)
        assert again.borrowed is not None
        assert id(again.borrowed.obj) in before


def taken(buffers: BufferPool, count: int) -> list[memoryview]:
    found = [buffers.take() for _ in range(count)]
    return [buffer for buffer in found if buffer is not None]


def test_unused_buffers_are_released() -> None:
    buffers = BufferPool()
    first = taken(buffers, 8)
    for buffer in first:
        buffers.put_back(buffer)
    buffers.shrink()  # all were needed since the last time
    again = taken(buffers, 3)
    assert {id(buffer) for buffer in again} <= {id(buffer) for buffer in first}
    for buffer in again:
        buffers.put_back(buffer)
    buffers.shrink()  # five were not
    found = taken(buffers, BUFFERS_MAX + 5)
    assert sum(any(buffer is one for one in first) for buffer in found) == 3
    assert len(found) == BUFFERS_MAX + 1, "others may take their place"


def test_a_request_larger_than_any_buffer_has_memory_of_its_own(listener: KafkaListener) -> None:
    size = 5 * RECEIVE_BYTES + 12345
    frame = bytes(size - 1) + b"\x01"
    large = listener.receive_large(size, memoryview(frame), 0, 10, _nothing)
    assert len(large.next_buffer()) == RECEIVE_BYTES, "one read does not take more"
    assert fill(large, frame[10:], 1 << 20) == frame
    assert large.borrowed is None


def test_a_request_that_arrives_below_the_minimum_rate_is_slow(listener: KafkaListener) -> None:
    large = listener.receive_large(100 << 20, memoryview(b"x"), 0, 1, _nothing)
    assert not large.is_slow(1000.0)
    large.add(int(RATE_S * RATE_MIN) - 1)
    assert not large.is_slow(1000.0 + RATE_S - 1)
    assert large.is_slow(1000.0 + RATE_S)
    large.add(int(RATE_S * RATE_MIN))
    assert not large.is_slow(1000.0 + 2 * RATE_S)
    large.restart_clock()
    assert not large.is_slow(1000.0 + 9 * RATE_S), "the broker did not read meanwhile"


def _nothing() -> None:
    """No request waits for the budget."""
