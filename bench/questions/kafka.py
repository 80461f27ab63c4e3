"""Is Penstock at least as fast as Apache Kafka, for less CPU and less memory?"""

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from bench import frames, runs
from bench.broker import KafkaBroker
from bench.frames import Shape
from bench.lab import Lab
from bench.load import Sample
from bench.measure import rss_anon_mb
from bench.peers.kafka import VERSION
from bench.report import AT_LEAST, AT_MOST, Bar, Table, client, cores, cpu_per_gb, noise, rate, ratio

TITLE: Final = f"Against Apache Kafka {VERSION}"
AS_FAST: Final = Bar(sign=AT_LEAST, value=1.0)
NO_MORE: Final = Bar(sign=AT_MOST, value=1.0)


@dataclass(frozen=True, slots=True)
class Cell:
    api: str
    shape: Shape
    acks: int

    def __str__(self) -> str:
        return f"{self.api}, {self.shape}" + {0: "", 1: ", acks=1", -1: ", acks=all"}[self.acks]


CELLS: Final = (
    *(Cell("produce", shape, acks) for shape in runs.SHAPES for acks in (1, -1)),
    *(Cell("fetch", shape, 0) for shape in runs.SHAPES),
)


def ask(lab: Lab) -> list[Table]:
    kafka = lab.kafka()
    table = Table(
        slug="kafka",
        title=TITLE,
        columns=(
            "load",
            "Penstock",
            "Kafka",
            "ratio",
            "bar",
            "broker CPU s/GB, Penstock / Kafka",
            "ratio",
            "bar",
            "broker cores, Penstock / Kafka",
            "client busy, Penstock / Kafka",
        ),
        notes=[
            "Kafka: KRaft, one node, its defaults, `-Xms1G -Xmx1G` and G1 as in its scripts, no log output, warmed "
            f"for {lab.scale.warm_s:g} s with these same loads.",
            f"{runs.CONNECTIONS} connections, {runs.PRODUCE_DEPTH} produce requests or {runs.FETCH_DEPTH} fetch in "
            f"flight on each; {runs.PARTITIONS} partitions; Produce and Fetch v{frames.VERSION}, not idempotent, not "
            "compressed. Both keep acknowledged data in the page cache (Kafka's default; Penstock's `flush=os`).",
            "A fetch is answered with one batch, and the next one on its connection is for the next batch. Kafka may "
            "use all cores, Penstock uses one: the cores column says what each took.",
        ],
    )
    with lab.penstock() as penstock:
        found = measure(lab, penstock, kafka)
        memory = memory_table(lab, penstock, kafka)
    table.notes.append(noise(found.values()))
    for cell, samples in found.items():
        ours, theirs = samples["Penstock"], samples["Kafka"]
        speed, speed_text = ratio([each.per_s for each in ours], [each.per_s for each in theirs])
        cost, cost_text = ratio(
            [each.broker_cpu_s_per_gb for each in ours], [each.broker_cpu_s_per_gb for each in theirs]
        )
        table.rows.append(
            (
                str(cell),
                rate(ours, cell.shape.is_single),
                rate(theirs, cell.shape.is_single),
                speed_text,
                table.verdict(str(cell), speed, AS_FAST),
                f"{cpu_per_gb(ours)} / {cpu_per_gb(theirs)}",
                cost_text,
                table.verdict(f"{cell}, CPU", cost, NO_MORE),
                f"{cores(ours)} / {cores(theirs)}",
                client(ours, theirs),
            )
        )
    return [table, memory]


def measure(lab: Lab, *servers: KafkaBroker) -> dict[Cell, dict[str, list[Sample]]]:
    found: dict[Cell, dict[str, list[Sample]]] = {cell: defaultdict(list) for cell in CELLS}
    with ExitStack() as stack:
        sources = {
            (server.name, shape): stack.enter_context(runs.filled(server, shape, fill_bytes, lab.folder))
            for shape, fill_bytes in zip(runs.SHAPES, lab.scale.fill_bytes, strict=True)
            for server in servers
        }
        for number in range(lab.scale.rounds):
            for cell in CELLS:
                lab.say(f"kafka: round {number + 1}, {cell}")
                for server in servers:
                    if cell.api == "produce":
                        run = runs.produce(server, cell.shape, cell.acks, lab.window, lab.folder)
                    else:
                        run = runs.fetch(sources[server.name, cell.shape], lab.window, lab.folder)
                    found[cell][server.name].append(run)
    return found


def memory_table(lab: Lab, penstock: KafkaBroker, kafka: KafkaBroker) -> Table:
    """After the same loads, before a server stops."""
    table = Table(
        slug="kafka-memory",
        title=f"Memory after these loads, against Apache Kafka {VERSION}",
        columns=("what", "Penstock", "Kafka", "ratio", "bar"),
        notes=["RssAnon right after the loads above, of the same processes; Kafka's includes its warming."],
    )
    ours, theirs = rss_anon_mb(penstock.pid), rss_anon_mb(kafka.pid)
    middle, text = ratio([ours], [theirs])
    table.rows.append(
        ("RssAnon", f"{ours:.0f} MB", f"{theirs:.0f} MB", text, table.verdict("memory after load", middle, NO_MORE))
    )
    return table
