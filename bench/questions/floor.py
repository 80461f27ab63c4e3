"""How near is Penstock to the least that a Python broker must do?"""

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from bench import runs
from bench.broker import Broker
from bench.frames import Shape
from bench.lab import Lab
from bench.load import Sample
from bench.report import AT_LEAST, Bar, Table, client, cores, cpu_per_gb, noise, rate, ratio

TITLE: Final = "Against the floor"
BAR_SINGLE: Final = Bar(sign=AT_LEAST, value=0.5)
BAR_LARGE: Final = Bar(sign=AT_LEAST, value=0.8)
DEEP: Final = 16
SIDES: Final = ("Penstock", "floor")


@dataclass(frozen=True, slots=True)
class Cell:
    api: str
    shape: Shape
    depth: int
    bar: Bar | None

    def __str__(self) -> str:
        return f"{self.api}, {self.shape}" + (f", {self.depth} in flight" if self.bar is None else "")


CELLS: Final = (
    *(
        Cell("produce", shape, runs.PRODUCE_DEPTH, BAR_SINGLE if shape.is_single else BAR_LARGE)
        for shape in runs.SHAPES
    ),
    *(Cell("fetch", shape, runs.FETCH_DEPTH, BAR_SINGLE if shape.is_single else BAR_LARGE) for shape in runs.SHAPES),
    Cell("produce", runs.SINGLE, DEEP, None),
    Cell("fetch", runs.SINGLE, DEEP, None),
)


def ask(lab: Lab) -> list[Table]:
    table = Table(
        slug="floor",
        title=TITLE,
        columns=(
            "load",
            *SIDES,
            "ratio",
            "bar",
            "broker cores, Penstock / floor",
            "broker CPU s/GB, Penstock / floor",
            "client busy, Penstock / floor",
        ),
        notes=[
            "The floor (`bench/floor.py`) is a bare uvloop program of the same design that only frames, checks the "
            "CRC and `pwrite`s, or computes a place and sends what is there. Produce is acks=1.",
            f"{runs.CONNECTIONS} connections with what a Kafka client has in flight by default: "
            f"{runs.PRODUCE_DEPTH} produce requests, or {runs.FETCH_DEPTH} fetch. The last rows have more, which no "
            "bar asks for: the system calls are then shared by many requests and what is left is Python.",
            f"Produce writes {runs.PARTITIONS} partitions (the floor: one file). A fetch is answered with one batch, "
            "and the next one on its connection is for the next batch.",
        ],
    )
    found = measure(lab)
    table.notes.append(noise(found.values()))
    for cell, samples in found.items():
        ours, theirs = samples["Penstock"], samples["floor"]
        middle, text = ratio([each.per_s for each in ours], [each.per_s for each in theirs])
        table.rows.append(
            (
                str(cell),
                rate(ours, cell.shape.is_single),
                rate(theirs, cell.shape.is_single),
                text,
                "-" if cell.bar is None else table.verdict(str(cell), middle, cell.bar),
                f"{cores(ours)} / {cores(theirs)}",
                f"{cpu_per_gb(ours)} / {cpu_per_gb(theirs)}",
                client(ours, theirs),
            )
        )
    return [table]


def measure(lab: Lab) -> dict[Cell, dict[str, list[Sample]]]:
    found: dict[Cell, dict[str, list[Sample]]] = {cell: defaultdict(list) for cell in CELLS}
    with ExitStack() as stack:
        penstock = stack.enter_context(lab.penstock())
        sources = {}
        for shape, fill_bytes in zip(runs.SHAPES, lab.scale.fill_bytes, strict=True):
            for server in (penstock, stack.enter_context(lab.floor())):
                source = stack.enter_context(runs.filled(server, shape, fill_bytes, lab.folder))
                sources[server.name, shape] = source
        producers: dict[str, Broker] = {"Penstock": penstock, "floor": stack.enter_context(lab.floor())}
        for number in range(lab.scale.rounds):
            for cell in CELLS:
                lab.say(f"floor: round {number + 1}, {cell}")
                for side in SIDES:
                    if cell.api == "produce":
                        run = runs.produce(producers[side], cell.shape, 1, lab.window, lab.folder, cell.depth)
                    else:
                        run = runs.fetch(sources[side, cell.shape], lab.window, lab.folder, cell.depth)
                    found[cell][side].append(run)
    return found
