"""`python -m bench.delivery [--quick]`: what each promise of the Python API costs. For the table in docs/delivery.md.

A broker as a user starts it, and one Python program beside it. Every load is run in every way, in turn, a few times
over; the result is the median, and its ratio to at-most-once within the same round. About two minutes.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click

import penstock
from bench.blocking_client import BlockingClient
from bench.broker import topic_name
from bench.cache import scratch
from bench.frames import payload
from bench.measure import machine, settle
from bench.penstock import Penstock
from bench.report import Table, ratio
from penstock import Connection, Delivery, Message

VALUE_BYTES: Final = 100
PARTITIONS: Final = 3
AT_MOST, AT_LEAST, EXACTLY = Delivery

_groups: Final = (f"group-{number}" for number in itertools.count())


class Bench:
    """A broker, a connection to it, and a stopwatch."""

    def __init__(self, broker: Penstock, mq: Connection, folder: Path) -> None:
        self.mq = mq
        self.value = payload(VALUE_BYTES)
        self._broker = broker
        self._folder = folder
        self._files = itertools.count()

    def topic(self, messages: int = 0) -> str:
        """A new topic that holds so many messages."""
        name = topic_name()
        with BlockingClient(self._broker.port) as client:
            client.create_topic(name, PARTITIONS, {})
        if messages:
            self.mq.publish_many(name, self.values(messages))
        return name

    def file(self) -> Path:
        return self._folder / f"handled-{next(self._files)}.sqlite"

    def values(self, messages: int) -> Iterator[bytes]:
        return itertools.repeat(self.value, messages)


Load = Callable[[Bench, int], float]
"""Does so many messages; the seconds that took, without what is done only once."""


def one_by_one(delivery: Delivery) -> Load:
    def run(bench: Bench, messages: int) -> float:
        topic = bench.topic()
        bench.mq.publish(topic, bench.value, delivery=delivery)
        began_s = time.perf_counter()
        for value in bench.values(messages):
            bench.mq.publish(topic, value, delivery=delivery)
        return time.perf_counter() - began_s

    return run


def many(delivery: Delivery) -> Load:
    def run(bench: Bench, messages: int) -> float:
        topic = bench.topic()
        bench.mq.publish_many(topic, [bench.value] * PARTITIONS, delivery=delivery)
        began_s = time.perf_counter()
        for _ in bench.mq.publish_stream(topic, bench.values(messages), delivery=delivery):
            pass
        return time.perf_counter() - began_s

    return run


def transactions(size: int) -> Load:
    """In transactions of so many messages."""

    def run(bench: Bench, messages: int) -> float:
        topic = bench.topic()
        with bench.mq.transaction(topic) as tx:
            tx.publish(topic, bench.value)
        began_s = time.perf_counter()
        for start in range(0, messages, size):
            with bench.mq.transaction(topic) as tx:
                for value in bench.values(min(size, messages - start)):
                    tx.publish(topic, value)
        return time.perf_counter() - began_s

    return run


def read(delivery: Delivery) -> Load:
    def run(bench: Bench, messages: int) -> float:
        topic = bench.topic(messages)
        loop = bench.mq.subscribe(topic, group=next(_groups), delivery=delivery, limit=messages)
        return time_of(loop)

    return run


def read_idempotently(bench: Bench, messages: int) -> float:
    topic = bench.topic(messages)
    loop = bench.mq.subscribe(
        topic,
        group=next(_groups),
        delivery=EXACTLY,
        limit=messages,
        idempotent_by=lambda message: f"{message.partition}-{message.offset}",
        store=bench.file(),
    )
    return time_of(loop)


def time_of(loop: penstock.Subscription) -> float:
    """From the first message to the end; how long a group takes to come together is not a message's cost."""
    next(loop)
    began_s = time.perf_counter()
    for _ in loop:
        pass
    return time.perf_counter() - began_s


def process(delivery: Delivery, batch: int) -> Load:
    def run(bench: Bench, messages: int) -> float:
        source, target = bench.topic(messages), bench.topic()
        began_s = 0.0

        def transform(message: Message) -> bytes | None:
            nonlocal began_s
            began_s = began_s or time.perf_counter()
            return message.value

        bench.mq.process(
            source, target, group=next(_groups), transform=transform, delivery=delivery, batch=batch, limit=messages
        )
        return time.perf_counter() - began_s

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    what: str
    way: str
    messages: int
    load: Load


ONE, MANY, READ, PROCESS = "publish, one by one", "publish_many", "subscribe", "process"
ROWS: Final = (
    Row(what=ONE, way=AT_MOST, messages=3_000, load=one_by_one(AT_MOST)),
    Row(what=ONE, way=AT_LEAST, messages=3_000, load=one_by_one(AT_LEAST)),
    Row(what=ONE, way=EXACTLY, messages=3_000, load=one_by_one(EXACTLY)),
    Row(what=ONE, way="a transaction each", messages=300, load=transactions(1)),
    Row(what=MANY, way=AT_MOST, messages=100_000, load=many(AT_MOST)),
    Row(what=MANY, way=AT_LEAST, messages=100_000, load=many(AT_LEAST)),
    Row(what=MANY, way=EXACTLY, messages=100_000, load=many(EXACTLY)),
    Row(what=MANY, way="transactions of 100", messages=20_000, load=transactions(100)),
    Row(what=MANY, way="transactions of 10,000", messages=100_000, load=transactions(10_000)),
    Row(what=READ, way=AT_MOST, messages=100_000, load=read(AT_MOST)),
    Row(what=READ, way=AT_LEAST, messages=100_000, load=read(AT_LEAST)),
    Row(what=READ, way="exactly-once, idempotent_by", messages=30_000, load=read_idempotently),
    Row(what=PROCESS, way=AT_MOST, messages=30_000, load=process(AT_MOST, 500)),
    Row(what=PROCESS, way=AT_LEAST, messages=30_000, load=process(AT_LEAST, 500)),
    Row(what=PROCESS, way="exactly-once, batch=500", messages=30_000, load=process(EXACTLY, 500)),
    Row(what=PROCESS, way="exactly-once, batch=10", messages=2_000, load=process(EXACTLY, 10)),
)


def measure(bench: Bench, rounds: int, scale: float) -> dict[Row, list[float]]:
    """Messages a second of every load, in every round."""
    found: dict[Row, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for row in ROWS:
            settle()
            messages = max(1, int(row.messages * scale))
            found[row].append(messages / row.load(bench, messages))
    return found


def table_of(found: dict[Row, list[float]]) -> Table:
    table = Table(
        slug="delivery",
        title="What each promise costs",
        columns=("what", "promise", "messages/s", "against at-most-once"),
    )
    cheapest = {row.what: rates for row, rates in found.items() if row.way == AT_MOST}
    for row, rates in found.items():
        table.rows.append((row.what, row.way, f"{median(rates):,.0f}", ratio(rates, cheapest[row.what])[1]))
    return table


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--quick", is_flag=True, help="A tenth of the messages, once: to see that it works.")
def main(rounds: int, quick: bool) -> None:
    """What each promise of the Python API costs, against a broker on this machine."""
    with scratch("delivery") as folder:
        broker = Penstock(folder)
        broker.start()
        try:
            with penstock.connect(f"127.0.0.1:{broker.port}") as mq:
                found = measure(Bench(broker, mq, folder), 1 if quick else rounds, 0.1 if quick else 1.0)
        finally:
            broker.stop()
    facts = ", ".join(f"{name} {value}" for name, value in machine().items() if name != "Java")
    print(f"{facts}; messages of {VALUE_BYTES} bytes, {PARTITIONS} partitions\n")
    print(table_of(found).markdown())


if __name__ == "__main__":
    main()
