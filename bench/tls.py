"""`python -m bench.tls [--quick]`: what TLS costs, in throughput and CPU, against plaintext and against Kafka's TLS.

Two clients with one connection each, in this process: a blocking one that does nothing with what it reads, and
librdkafka, as its users have it. Each round measures all cases, one after the other, so that what else the machine
does hits all of them.
"""

import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Final

import click
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.blocking_client import BlockingClient
from bench.cache import NotRun
from bench.frames import Shape, fetch_frame, produce_frame
from bench.measure import cpu_s, machine
from bench.peers.kafka import ApacheKafka
from bench.report import AT_LEAST, Bar, Table
from tests.brokers import BrokerProcess
from tests.certificates import Certificates

PLAIN, TLS = "PLAIN", "TLS"
WRITE, READ = "librdkafka produces", "librdkafka consumes"
SHAPES: Final = (
    Shape(name="1 KiB", records=1, value_bytes=1 << 10),
    Shape(name="128 KiB", records=1, value_bytes=128 << 10),
)
BATCHES: Final = 64
"""Batches of each topic that fetches read, again and again: they stay in the page cache."""
DEPTH: Final = 8
RATIO_MIN: Final = 0.6
"""The goal at 128 KiB: throughput with TLS against plaintext."""
KAFKA_MIN: Final = 1.0
"""The goal at 128 KiB: throughput with TLS against Kafka's."""
TOPICS: Final = {"1 KiB": "small-01", "128 KiB": "large-01"}
LIBRDKAFKA_TOPIC: Final = "filled-1"
LIBRDKAFKA_BATCHES: Final = 4000
"""Batches of 128 KiB that librdkafka reads in each round."""


class Client(BlockingClient):
    """A blocking client that may speak TLS, with several requests in flight."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        super().__init__(port)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")

    def run(self, frames: list[bytes], seconds: float) -> tuple[int, float]:
        """Sends the frames again and again; returns the number of answers, and the seconds that they took."""
        endless = cycle(frames)
        for frame in islice(endless, DEPTH):
            self._socket.sendall(frame)
        count, began_s = 0, time.perf_counter()
        while (passed_s := time.perf_counter() - began_s) < seconds:
            self._receive()
            self._socket.sendall(next(endless))
            count += 1
        for _ in range(DEPTH):
            self._receive()
        return count, passed_s

    def _receive(self) -> None:
        self._read(int.from_bytes(self._read(4)))


@dataclass(slots=True)
class Case:
    """Answers per second and CPU time per answer, in each round."""

    per_s: list[float] = field(default_factory=list)
    broker_us: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)

    def add(self, count: int, seconds: float, broker_s: float, client_s: float) -> None:
        self.per_s.append(count / seconds)
        self.broker_us.append(broker_s * 1e6 / count)
        self.client_us.append(client_s * 1e6 / count)


@dataclass(frozen=True, slots=True)
class Server:
    """A broker with a plaintext listener and one with TLS."""

    pid: int
    port: int
    tls_port: int


@contextmanager
def penstock_with_tls(folder: Path, keystore: Path) -> Iterator[Server]:
    listeners = {PLAIN: "PLAINTEXT", TLS: "SSL"}
    broker = BrokerProcess(
        folder, {"ssl.keystore.location": str(keystore)}, listeners=listeners, by_exec=True
    ).start()
    try:
        port, tls_port = (int(broker.at[name].rpartition(":")[2]) for name in (PLAIN, TLS))
        yield Server(broker.pid, port, tls_port)
    finally:
        broker.stop()


@contextmanager
def kafka_with_tls(folder: Path, keystore: Path) -> Iterator[Server | None]:
    """Yields None where there is no Java or no Maven."""
    broker = ApacheKafka(folder, keystore=keystore)
    try:
        broker.start()
    except NotRun as reason:
        print(f"without Kafka: {reason}")
        yield None
        return
    try:
        yield Server(broker.pid, broker.port, broker.tls_port)
    finally:
        broker.stop()


def fill(server: Server, shape: Shape) -> None:
    """Creates the topic that is fetched, and writes its batches."""
    with BlockingClient(server.port) as client:
        client.create_topic(TOPICS[shape.name], 2, {})
        for _ in range(BATCHES):
            client.exchange(produce_frame(TOPICS[shape.name], 1, shape, 1).data)


def fill_for_librdkafka(server: Server) -> None:
    with BlockingClient(server.port) as client:
        client.create_topic(LIBRDKAFKA_TOPIC, 1, {})
        for _ in range(LIBRDKAFKA_BATCHES):
            client.exchange(produce_frame(LIBRDKAFKA_TOPIC, 0, SHAPES[1], 1).data)


def frames_of(direction: str, shape: Shape) -> list[bytes]:
    """Returns requests: appends to partition 0, or fetches of one batch each from partition 1."""
    topic = TOPICS[shape.name]
    if direction == "produce":
        return [produce_frame(topic, 0, shape, 1).data]
    return [fetch_frame(topic, 1, offset, shape.batch_bytes).data for offset in range(BATCHES)]


def measure(server: Server, context: ssl.SSLContext | None, frames: list[bytes], seconds: float, into: Case) -> None:
    with Client(server.port if context is None else server.tls_port, context) as client:
        client.run(frames, seconds / 4)
        broker_s, client_s = cpu_s(server.pid), time.process_time()
        count, passed_s = client.run(frames, seconds)
        into.add(count, passed_s, cpu_s(server.pid) - broker_s, time.process_time() - client_s)


def librdkafka_options(server: Server, trust: Path | None) -> dict[str, str | int]:
    """`trust`: the authorities of the broker's certificate; None for plaintext."""
    if trust is None:
        return {"bootstrap.servers": f"127.0.0.1:{server.port}"}
    found = {"bootstrap.servers": f"127.0.0.1:{server.tls_port}", "security.protocol": "SSL"}
    return {**found, "ssl.ca.location": str(trust)}


def read_with_librdkafka(server: Server, trust: Path | None, into: Case) -> None:
    options = librdkafka_options(server, trust)
    consumer = Consumer({**options, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(LIBRDKAFKA_TOPIC, 0, 0)])
    left = LIBRDKAFKA_BATCHES - len(consumer.consume(1, 60.0))
    broker_s, client_s, began_s = cpu_s(server.pid), time.process_time(), time.perf_counter()
    count = left
    while left:
        left -= len(consumer.consume(min(100, left), 60.0))
    into.add(count, time.perf_counter() - began_s, cpu_s(server.pid) - broker_s, time.process_time() - client_s)
    consumer.close()


def write_with_librdkafka(server: Server, trust: Path | None, shape: Shape, seconds: float, into: Case) -> None:
    producer = Producer({**librdkafka_options(server, trust), "acks": 1, "queue.buffering.max.kbytes": 1 << 14})
    value = bytes(shape.value_bytes)
    producer.produce(TOPICS[shape.name], value, partition=0)
    producer.flush()
    broker_s, client_s, began_s = cpu_s(server.pid), time.process_time(), time.perf_counter()
    count = 0
    while time.perf_counter() - began_s < seconds:
        try:
            producer.produce(TOPICS[shape.name], value, partition=0)
            count += 1
        except BufferError:
            producer.poll(0.01)
    producer.flush()
    into.add(count, time.perf_counter() - began_s, cpu_s(server.pid) - broker_s, time.process_time() - client_s)


def ask(rounds: int, seconds: float) -> Table:
    table = Table(
        slug="tls",
        title="TLS against plaintext and against Kafka's TLS, one connection",
        columns=(
            "",
            "plain MB/s",
            "TLS MB/s",
            "of plain",
            "bar",
            "Kafka's TLS MB/s",
            "of Kafka's",
            "bar",
            "broker CPU: plain",
            "TLS",
            "Kafka's TLS",
            "client CPU: plain",
            "TLS",
        ),
        notes=[
            f"One blocking client, {DEPTH} requests in flight, medians of {rounds} rounds of {seconds:g} s; CPU per "
            "request.",
            "The client decrypts as well, so the ratio is of both sides together on this machine.",
        ],
    )
    kinds = [(shape, direction) for shape in SHAPES for direction in ("produce", "fetch")]
    kinds += [(SHAPES[1], direction) for direction in (WRITE, READ)]
    cases = {kind: (Case(), Case(), Case()) for kind in kinds}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        made = Certificates(Path(folder, "certificates"))
        keystore, context = made.server(), ssl.create_default_context(cafile=str(made.trust))
        ours = stack.enter_context(penstock_with_tls(Path(folder), keystore))
        kafka = stack.enter_context(kafka_with_tls(Path(folder, "kafka"), keystore))
        for shape in SHAPES:
            fill(ours, shape)
            if kafka is not None:
                fill(kafka, shape)
        for server in filter(None, (ours, kafka)):
            fill_for_librdkafka(server)
        for _ in range(rounds):
            for (shape, direction), (plain, tls, theirs) in cases.items():
                for server, is_tls, case in ((ours, False, plain), (ours, True, tls), (kafka, True, theirs)):
                    if server is None:
                        continue
                    if direction == READ:
                        read_with_librdkafka(server, made.trust if is_tls else None, case)
                    elif direction == WRITE:
                        write_with_librdkafka(server, made.trust if is_tls else None, shape, seconds, case)
                    else:
                        frames = frames_of(direction, shape)
                        measure(server, context if is_tls else None, frames, seconds, case)
    for (shape, direction), found in cases.items():
        table.rows.append(row_of(table, direction, shape, *found))
    return table


def row_of(table: Table, direction: str, shape: Shape, plain: Case, tls: Case, kafka: Case) -> tuple[str, ...]:
    name, has_goal = f"{direction} {shape}", shape.value_bytes >= 128 << 10

    def compare(other: Case, at_least: float) -> tuple[str, str]:
        if not other.per_s:
            return "-", ""
        ratio = median(tls.per_s) / median(other.per_s)
        return f"{ratio:.2f}", table.verdict(name, ratio, Bar(sign=AT_LEAST, value=at_least)) if has_goal else ""

    def rate(case: Case) -> str:
        return f"{median(case.per_s) * shape.value_bytes / 1e6:,.1f}" if case.per_s else "-"

    times = plain.broker_us, tls.broker_us, kafka.broker_us, plain.client_us, tls.client_us
    cpu = [f"{median(of):,.0f} µs" if of else "-" for of in times]
    of_plain, of_kafka = compare(plain, RATIO_MIN), compare(kafka, KAFKA_MIN)
    return (name, rate(plain), rate(tls), *of_plain, rate(kafka), *of_kafka, *cpu)


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--quick", is_flag=True, help="One round of half a second: to see that it works.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Where the table goes, too.")
def main(rounds: int, quick: bool, output: Path | None) -> None:
    """What TLS costs, in throughput and CPU."""
    table = ask(1, 0.5) if quick else ask(rounds, 5.0)
    facts = ", ".join(f"{name} {value}" for name, value in machine().items() if name != "Java")
    text = f"{facts}\n\n{table.markdown()}"
    print(text)
    if output is not None:
        output.write_text(text)


if __name__ == "__main__":
    main()
