"""`python -m bench.views [--quick]`: what a view saves its reader, and how fast records are filtered.

A broker as a user starts it, and one consumer (confluent-kafka) beside it, on the same machine. Of a topic in which
one record in a hundred matches, it reads either everything, and looks at the header itself, or the view. Both ways in
turn, a few times over; the result is the median, and the ratio within the same round. Bytes are what the consumer
says that it has received. Before that, without a broker: how many records the predicate takes a second.
"""

import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.blocking_client import BlockingClient
from bench.broker import topic_name
from bench.cache import scratch
from bench.frames import SEED
from bench.measure import cpu_s, machine, settle
from bench.penstock import Penstock
from bench.report import AT_LEAST, Bar, Table
from penstock.records.build import Record, build_batch
from penstock.records.columns import decode_columns
from penstock.records.compression import Codec
from penstock.views.predicate import compile_expression

MATCHING: Final = 100
"""One in so many."""
WHERE: Final = "tag = 'eu'"
TAG, WANTED, OTHER = "tag", b"eu", b"us"
SOONER: Final = Bar(sign=AT_LEAST, value=5.0, unit="x")
FEWER: Final = Bar(sign=AT_LEAST, value=20.0, unit="x")
FILTERED: Final = Bar(sign=AT_LEAST, value=2.0, unit=" M/s")
PATIENCE_S: Final = 300.0
BATCH_RECORDS: Final = 500
EXPRESSIONS: Final = (
    WHERE,
    "tag IN ('eu', 'uk') AND priority > 3",
    "tag LIKE 'e%' OR key = 'x' OR timestamp < 5",
    "$.total > 900",
    "$.total > 900 AND tag = 'eu'",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    value_bytes: int
    compression: str
    records: int
    is_json: bool = False

    def __str__(self) -> str:
        kind = "JSON" if self.is_json else "noise"
        return f"{self.value_bytes} B of {kind}, {self.compression}"


LOADS: Final = (
    Load(value_bytes=100, compression="none", records=2_000_000),
    Load(value_bytes=100, compression="zstd", records=2_000_000),
    Load(value_bytes=1024, compression="none", records=400_000),
    Load(value_bytes=1024, compression="zstd", records=400_000),
    Load(value_bytes=100, compression="zstd", records=2_000_000, is_json=True),
    Load(value_bytes=1024, compression="zstd", records=400_000, is_json=True),
)
DIFFERENT: Final = 5000
"""Values; far more than are in one batch, so that no codec sees one twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    seconds: float
    received_bytes: int
    broker_cpu_s: float


def fill(broker: Penstock, load: Load, records: int) -> tuple[str, str]:
    """A topic with so many records, one in a hundred tagged, and a view of those."""
    topic = topic_name()
    with BlockingClient(broker.port) as connection:
        connection.create_topic(topic, 1, {})
        connection.create_topic(f"{topic}-view", 1, {"view.of": topic, "view.where": WHERE})
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "compression.type": load.compression,
            "linger.ms": 50,
            "queue.buffering.max.messages": 500_000,
        }
    )
    rng = random.Random(SEED)
    # Noise as text shrinks to half, which is the worst that a codec meets; orders as JSON to a fifth.
    values = [
        _order(rng, load.value_bytes) if load.is_json else rng.randbytes(load.value_bytes // 2).hex()
        for _ in range(DIFFERENT)
    ]
    for number in range(records):
        tag = WANTED if number % MATCHING == 0 else OTHER
        value, key = values[number % DIFFERENT], b"%d" % number
        while True:
            try:
                producer.produce(topic, value, key=key, headers=[(TAG, tag)], partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE_S) == 0
    return topic, f"{topic}-view"


def _order(rng: random.Random, size: int) -> str:
    """An order with as many items as its size has room for."""
    order: dict[str, Any] = {"id": rng.randrange(10**9), "customer": f"customer-{rng.randrange(10**5)}"}
    text, items = json.dumps(order), []
    while True:
        items.append({"sku": f"S-{rng.randrange(10**6)}", "n": rng.randrange(1, 9)})
        longer = json.dumps({**order, "items": items})
        if len(longer) > size:
            return text
        text = longer


def read_in_child(broker: Penstock, topic: str, records: int, filters: bool) -> Reading:
    """In a process of its own, so that what it reads from the network is known."""
    before_s = cpu_s(broker.pid)
    command = [sys.executable, "-m", "bench.views", "--child", f"{broker.port},{topic},{records},{int(filters)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return Reading(
        seconds=result["seconds"], received_bytes=result["received_bytes"], broker_cpu_s=cpu_s(broker.pid) - before_s
    )


def child(port: int, topic: str, records: int, filters: bool) -> None:
    """Read a topic to its end, and tell how that was. `filters`: look at the header of each record."""
    received = 0

    def on_stats(text: str) -> None:
        nonlocal received
        received = sum(each["rxbytes"] for each in json.loads(text)["brokers"].values())

    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the fetch after the last one shows that the end is reached
            "statistics.interval.ms": 100,
            "stats_cb": on_stats,
        }
    )
    consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    began_s = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    matched = 0
    while True:
        for message in consumer.consume(1000, 0.02):  # it waits for as many, or so long
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                seconds = time.perf_counter() - began_s
                consumer.poll(0.3)  # the last statistics
                assert matched == -(-records // MATCHING), f"{matched} of {records} records matched"
                consumer.close()
                print(json.dumps({"seconds": seconds, "received_bytes": received}))
                return
            matched += not filters or _is_wanted(message)


def _is_wanted(message: Any) -> bool:
    return any(name == TAG and value == WANTED for name, value in message.headers() or ())


def ask_readers(broker: Penstock, rounds: int, scale: float) -> Table:
    table = Table(
        slug="views",
        title="A view against reading everything",
        columns=(
            "records",
            "all, filtered by the client",
            "view",
            "sooner",
            "bar",
            "fewer bytes",
            "bar",
            "broker CPU",
        ),
        notes=[
            f"One record in {MATCHING} matches; one partition, one consumer (confluent-kafka), from first to last."
        ],
    )
    for load in LOADS:
        records = int(load.records * scale)
        topic, view = fill(broker, load, records)
        settle()
        every, few = [], []
        for _ in range(rounds):
            every.append(read_in_child(broker, topic, records, True))
            few.append(read_in_child(broker, view, records, False))
        sooner = median(a.seconds / b.seconds for a, b in zip(every, few, strict=True))
        fewer = median(a.received_bytes / b.received_bytes for a, b in zip(every, few, strict=True))
        table.rows.append(
            (
                f"{records:,} of {load}",
                f"{median(each.seconds for each in every):.2f} s",
                f"{median(each.seconds for each in few):.2f} s",
                f"{sooner:.1f}x",
                table.verdict(f"sooner, {load}", sooner, SOONER),
                f"{fewer:.0f}x",
                table.verdict(f"fewer bytes, {load}", fewer, FEWER),
                f"{median(each.broker_cpu_s for each in few):.2f} s",
            )
        )
    return table


def ask_predicates(rounds: int, seconds: float) -> Table:
    table = Table(
        slug="filters",
        title="Records filtered a second, on one core",
        columns=("condition", "million records/s", "bar"),
        notes=[f"Uncompressed batches of {BATCH_RECORDS} records of 100 B, decoded and filtered; nothing is sent."],
    )
    rows = [
        Record(
            key=b"%d" % number,
            value=b'{"total": %d, "text": "%s"}' % (number % 1000, b"x" * 70),
            timestamp_ms=1_700_000_000_000 + number,
            headers=((TAG, WANTED if number % MATCHING == 0 else OTHER), ("priority", b"%d" % (number % 7))),
        )
        for number in range(BATCH_RECORDS)
    ]
    batch = bytes(build_batch(rows, codec=Codec.NONE))
    for expression in EXPRESSIONS:
        predicate, rates = compile_expression(expression), []
        for _ in range(rounds):
            done, began_s = 0, time.process_time()
            while time.process_time() - began_s < seconds:
                for _ in range(20):
                    matching = predicate.matching(decode_columns(batch), 0)
                    for _ in matching:
                        pass
                    done += BATCH_RECORDS
            rates.append(done / (time.process_time() - began_s) / 1e6)
        rate = median(rates)
        is_barred = "$" not in expression
        verdict = table.verdict(expression, rate, FILTERED) if is_barred else ""
        table.rows.append((f"`{expression}`", f"{rate:.2f}", verdict))
    return table


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--quick", is_flag=True, help="A tenth of the records, once: to see that it works.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Where the tables go, too.")
@click.option("--child", "as_child", hidden=True, default="")
def main(rounds: int, quick: bool, output: Path | None, as_child: str) -> None:
    """What a view saves its reader, and how fast records are filtered."""
    if as_child:
        port, topic, records, filters = as_child.split(",")
        child(int(port), topic, int(records), filters == "1")
        return
    rounds, scale = (1, 0.1) if quick else (rounds, 1.0)
    tables = [ask_predicates(rounds, 0.3 if quick else 1.0)]
    with scratch("views") as folder:
        broker = Penstock(folder)
        broker.start()
        try:
            tables.append(ask_readers(broker, rounds, scale))
        finally:
            broker.stop()
    facts = ", ".join(f"{name} {value}" for name, value in machine().items() if name != "Java")
    text = "\n".join([f"{facts}\n", *(table.markdown() for table in tables)])
    print(text)
    if output is not None:
        output.write_text(text)


if __name__ == "__main__":
    main()
