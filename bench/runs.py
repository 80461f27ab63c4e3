"""The loads themselves: the same requests against any broker, and a check that it did what it answered."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.blocking_client import BlockingClient, WrongAnswer
from bench.broker import Broker
from bench.frames import VERSION, Frame, Shape, batch_of, fetch_frame, produce_frame
from bench.load import Load, Sample
from bench.measure import settle
from penstock.wire.frames import read_response
from penstock.wire.keys import ApiKey

PARTITIONS: Final = 4
FETCH_FRAMES_MAX: Final = 4096
VISIBLE_S_MAX: Final = 10.0
FILL_S_MAX: Final = 600.0

CONNECTIONS: Final = 16
PRODUCE_DEPTH: Final = 5
FETCH_DEPTH: Final = 1
"""What a Kafka client has in flight on one connection by default."""

SINGLE: Final = Shape(name="1 record of 100 B", records=1, value_bytes=100)
MEDIUM: Final = Shape(name="16 KiB batch", records=16, value_bytes=1007)
LARGE: Final = Shape(name="128 KiB batch", records=128, value_bytes=1013)
SHAPES: Final = (SINGLE, MEDIUM, LARGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How long a run is measured: for a time, or until so many bytes have moved."""

    seconds: float
    ramp_s: float
    bytes_max: int = 1 << 62
    rate_per_s: float = 0.0


# -- produce


def produce(
    broker: Broker, shape: Shape, acks: int, window: Window, folder: Path, depth: int = PRODUCE_DEPTH
) -> Sample:
    """Append to a fresh topic, then check that everything that was acknowledged is there."""
    settle()
    topic = broker.make_topic(shape, PARTITIONS)
    try:
        frames = [produce_frame(topic, number, shape, acks) for number in range(PARTITIONS)]
        answer_bytes = _check_produce(broker, frames[0], topic)
        load = Load(
            port=broker.port,
            frames=[replace(frame, answer_bytes=answer_bytes) for frame in frames],
            connections=CONNECTIONS,
            depth=depth,
            seconds=window.seconds,
            ramp_s=window.ramp_s,
            bytes_max=window.bytes_max,
            rate_per_s=window.rate_per_s,
        )
        sample = load.run(folder, broker.pid, shape.batch_bytes)
        _check_written(broker, topic, (sample.answered_total + 1) * shape.records)
    finally:
        broker.drop_topic(topic)
    return sample


def _check_produce(broker: Broker, frame: Frame, topic: str) -> int:
    """Send one request and read its answer with care. Its size: that of every answer that follows."""
    with BlockingClient(broker.port) as connection:
        answer = connection.exchange(frame.data)
    _, response = read_response(ApiKey.PRODUCE, VERSION, answer)
    (topic_response,) = response.responses
    (partition,) = topic_response.partition_responses
    if topic_response.name != topic or partition.error_code or partition.base_offset != 0:
        raise WrongAnswer(f"{broker.name}: produce to {topic} answered {topic_response}")
    return len(answer)


def _check_written(broker: Broker, topic: str, expected: int) -> None:
    give_up_s = time.monotonic() + VISIBLE_S_MAX
    while (found := broker.records_in(topic, PARTITIONS)) != expected:
        if time.monotonic() > give_up_s:
            raise WrongAnswer(f"{broker.name}: {expected} records were acknowledged, {found} are in {topic}")
        time.sleep(0.05)


# -- fetch


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A topic with something to read, and requests that read it. `records_each`: in one answer."""

    broker: Broker
    topic: str
    frames: tuple[Frame, ...]
    bytes_each: int
    records_each: int


@contextmanager
def filled(broker: Broker, shape: Shape, size_bytes: int, folder: Path) -> Iterator[Filled]:
    """A topic of at least `size_bytes`, dropped afterwards."""
    topic = broker.make_topic(shape, 1)
    try:
        batches = max(CONNECTIONS, size_bytes // shape.batch_bytes)
        append(broker, shape, topic, batches, folder)
        yield readable(broker, shape, topic, batches)
    finally:
        broker.drop_topic(topic)


def append(broker: Broker, shape: Shape, topic: str, batches: int, folder: Path, acks: int = 1) -> Sample:
    """Write so many batches to a topic's first partition."""
    sample = Load(
        port=broker.port,
        frames=[produce_frame(topic, 0, shape, acks)],
        connections=CONNECTIONS,
        depth=PRODUCE_DEPTH,
        seconds=FILL_S_MAX,
        requests_max=batches,
    ).run(folder, broker.pid, shape.batch_bytes)
    settle()
    return sample


def readable(broker: Broker, shape: Shape, topic: str, batches: int, batches_each: int = 1) -> Filled:
    """Requests that read a topic's first partition, so many batches a request, each where the one before ended.

    Where that would be a great many, they are for as many stretches as there are connections, from all over it.
    """
    answers = batches // batches_each
    stretch = min(answers, FETCH_FRAMES_MAX) // CONNECTIONS
    starts = [number * answers // CONNECTIONS for number in range(CONNECTIONS)]
    numbers = range(answers) if answers <= FETCH_FRAMES_MAX else [s + n for s in starts for n in range(stretch)]
    places = [number * batches_each for number in numbers]
    return Filled(
        broker=broker,
        topic=topic,
        frames=tuple(_fetch_frames(broker, shape, topic, places, batches_each)),
        bytes_each=shape.batch_bytes * batches_each,
        records_each=shape.records * batches_each,
    )


def _fetch_frames(broker: Broker, shape: Shape, topic: str, batches: list[int], batches_each: int) -> Iterator[Frame]:
    """A request for the batches from each of these on. Three answers are read with care first."""
    max_bytes = shape.batch_bytes * batches_each
    probes = {batches[0], batches[len(batches) // 2], batches[-1]}
    layouts = {_check_fetch(broker, shape, topic, batch, max_bytes) for batch in probes}
    if len(layouts) != 1:
        raise WrongAnswer(f"{broker.name}: answers to like fetches differ in layout: {layouts}")
    ((answer_bytes, check_at),) = layouts
    for batch in batches:
        offset = batch * shape.records
        frame = fetch_frame(topic, 0, offset, max_bytes)
        yield replace(frame, answer_bytes=answer_bytes, check_at=check_at, check=offset.to_bytes(8))


def _check_fetch(broker: Broker, shape: Shape, topic: str, batch: int, max_bytes: int) -> tuple[int, int]:
    """The size of an answer and where its first batch begins."""
    offset = batch * shape.records
    with BlockingClient(broker.port) as connection:
        answer = connection.exchange(fetch_frame(topic, 0, offset, max_bytes).data)
    _, response = read_response(ApiKey.FETCH, VERSION, answer)
    partition = response.responses[0].partitions[0]
    records = bytes(partition.records or b"")
    expected = bytearray(batch_of(shape.records, shape.value_bytes))
    expected[12:16] = records[12:16]  # the leader's epoch, which is the broker's to choose
    whole = bytearray()
    for number in range(max_bytes // shape.batch_bytes):
        expected[:8] = (offset + number * shape.records).to_bytes(8)
        whole += expected
    if response.error_code or partition.error_code or records != whole:
        raise WrongAnswer(
            f"{broker.name}: fetch of {topic} at {offset} answered error {partition.error_code} and "
            f"{len(records)} bytes, expected {max_bytes}"
        )
    return len(answer), answer.index(records)


def fetch(source: Filled, window: Window, folder: Path, depth: int = FETCH_DEPTH) -> Sample:
    """Read a filled topic, every connection from a place of its own, round and round."""
    settle()
    return Load(
        port=source.broker.port,
        frames=source.frames,
        connections=CONNECTIONS,
        depth=depth,
        seconds=window.seconds,
        ramp_s=window.ramp_s,
        bytes_max=window.bytes_max,
    ).run(folder, source.broker.pid, source.bytes_each)


def replay(source: Filled, window: Window, folder: Path) -> Sample:
    """Read a filled topic from end to end over one connection, as a consumer does; then again, till time is up."""
    settle()
    load = Load(
        port=source.broker.port,
        frames=source.frames,
        connections=1,
        depth=FETCH_DEPTH,
        seconds=window.seconds,
        ramp_s=window.ramp_s,
    )
    return load.run(folder, source.broker.pid, source.bytes_each)
