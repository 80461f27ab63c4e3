"""The rows that the column codecs are measured with, and how they are measured."""

import random
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

from bench.frames import SEED
from bench.report import Bar, Table
from penstock.schemas.columns import kernel

ROWS: Final = 20_000
HEADER: Final = b"\x00\x00\x00\x00\x01"
STATES: Final = ["NEW", "PAID", "SHIPPED"]
Case = tuple[str, Callable[[], object], Callable[[], None], bool]
"""A name, our work and the peer's on all rows, and whether there is a bar for ours."""


def orders() -> list[dict[str, Any]]:
    rng = random.Random(SEED)
    return [
        {
            "id": 10**9 + number,
            "quantity": rng.randrange(100),
            "customer": f"customer-{rng.randrange(10**6)}",
            "price": rng.random() * 100,
            "gift": rng.random() < 0.5,
            "at": 1_790_000_000_000_000 + rng.randrange(10**12),
            "note": None if rng.random() < 0.3 else f"note {number}",
            "state": rng.choice(STATES),
            "day": rng.randrange(20_000, 21_000),
            "token": rng.randbytes(16),
        }
        for number in range(ROWS)
    ]


def cpu_us_per_row(work: Callable[[], object], rounds: int, seconds: float) -> float:
    """Returns the CPU time that `work` takes for each of its rows."""
    found = []
    for _ in range(rounds):
        done, began_s = 0, time.process_time()
        while time.process_time() - began_s < seconds:
            work()
            done += ROWS
        found.append((time.process_time() - began_s) * 1e6 / done)
    return median(found)


def measure(table: Table, cases: Sequence[Case], bar: Bar, rounds: int, seconds: float) -> None:
    """Adds the figures of each case to a table. `bar`: for millions of rows in a second."""
    loops = "compiled" if kernel.active is kernel.COMPILED else "pure Python"
    table.notes.insert(1, f"With {loops} loops.")
    for name, ours, theirs, is_barred in cases:
        own, other = (cpu_us_per_row(work, rounds, seconds) for work in (ours, theirs))
        verdict = table.verdict(f"{table.slug}, {name}", 1 / own, bar) if is_barred else ""
        cells = f"{1 / own:.2f}", verdict, f"{own:.2f} µs", f"{other:.2f} µs", f"{other / own:.0f}x"
        table.rows.append((name, *cells))
