"""What do transactions cost, next to Apache Kafka's?"""

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench import client_pool, coordinators, runs
from bench.broker import KafkaBroker
from bench.clients import VALUE_BYTES
from bench.lab import Lab
from bench.load import Sample
from bench.peers.kafka import VERSION
from bench.report import AT_LEAST, Bar, Table, client, cores, cpu_each, is_client_bound, noise, ratio
from bench.runs import Window

TITLE: Final = f"Transactions with the same confluent-kafka producer, against Apache Kafka {VERSION}"
AS_FAST: Final = Bar(sign=AT_LEAST, value=1.0)


@dataclass(frozen=True, slots=True)
class Cell:
    producers: int
    messages: int

    def __str__(self) -> str:
        who = "1 producer" if self.producers == 1 else f"{self.producers} producers"
        return f"{who}, {self.messages} message{'s' if self.messages > 1 else ''} a transaction"


CELLS: Final = (Cell(1, 1), Cell(1, 10), Cell(1, 100), Cell(16, 1))


def ask(lab: Lab) -> list[Table]:
    def loads(server: KafkaBroker) -> Generator[object, None, None]:
        for cell in CELLS:
            yield transact(server, cell, Window(seconds=2.0, ramp_s=0.0))

    kafka = lab.warm_kafka("transactions", loads)
    found: dict[Cell, dict[str, list[Sample]]] = {cell: defaultdict(list) for cell in CELLS}
    window = Window(seconds=lab.scale.coordinator_s, ramp_s=lab.scale.ramp_s)
    with lab.penstock() as penstock:
        alike = coordinators.check_alike(coordinators.TRANSACTIONS, penstock, kafka)
        for number in range(lab.scale.coordinator_rounds):
            for cell, samples in found.items():
                lab.say(f"transactions: round {number + 1}, {cell}")
                for server in (penstock, kafka):
                    samples[server.name].append(transact(server, cell, window))
    table = Table(
        slug="transactions",
        title=TITLE,
        columns=(
            "load",
            "transactions/s, Penstock",
            "Kafka",
            "ratio",
            "bar",
            "messages/s, Penstock / Kafka",
            "broker CPU µs a transaction, Penstock / Kafka",
            "ratio",
            "broker cores, Penstock / Kafka",
            "client cores, Penstock / Kafka",
        ),
        notes=[
            f"Begin, produce messages of {VALUE_BYTES // 1024} KiB without keys to {runs.PARTITIONS} partitions, "
            "commit, and the next one; all settings are confluent-kafka's defaults. Several producers are threads of "
            f"one process. Rounds: {lab.scale.coordinator_rounds} of {lab.scale.coordinator_s:g} s, a new topic and "
            "new transactional ids in each, whose set-up is not counted. Afterwards a `read_committed` consumer "
            "reads the topic and counts what was committed.",
            "A transaction takes three requests, each of which waits for the one before, and the client waits 1 ms "
            "of its own before the first: with one producer the figure is of latency, the broker's and the client's.",
            f"Kafka was warmed for {lab.scale.warm_s:g} s with these same loads. {alike}",
            noise(found.values()),
        ],
    )
    for cell, samples in found.items():
        table.rows.append(_row(table, cell, samples["Penstock"], samples["Kafka"]))
    return [table]


def transact(server: KafkaBroker, cell: Cell, window: Window) -> Sample:
    topic = server.make_topic(runs.SINGLE, runs.PARTITIONS)
    try:
        return client_pool.run(server, "transact", topic, runs.PARTITIONS, cell.producers, cell.messages, window)
    finally:
        server.drop_topic(topic)


def _row(table: Table, cell: Cell, ours: list[Sample], theirs: list[Sample]) -> tuple[str, ...]:
    speed, speed_text = ratio([each.per_s for each in ours], [each.per_s for each in theirs])
    _, cost_text = ratio([each.broker_cpu_us_each for each in ours], [each.broker_cpu_us_each for each in theirs])
    messages = [f"{median(each.per_s for each in side) * cell.messages:,.0f}" for side in (ours, theirs)]
    return (
        str(cell),
        f"{median(each.per_s for each in ours):,.0f}/s",
        f"{median(each.per_s for each in theirs):,.0f}/s",
        speed_text,
        "client's ⚠" if is_client_bound(ours) else table.verdict(str(cell), speed, AS_FAST),
        " / ".join(messages),
        f"{cpu_each(ours)} / {cpu_each(theirs)}",
        cost_text,
        f"{cores(ours)} / {cores(theirs)}",
        client(ours, theirs),
    )
