"""Runs simulators by their seeds: one, many, or until a planted bug is found. A failure names its seed."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from penstock.foundation.errors import PenstockError

PROGRESS = 100


class SeededRun(Protocol):
    """One seeded run of a simulator."""

    counts: Counter[str]

    @property
    def faults(self) -> int: ...

    def run(self) -> None: ...


def run_seed(run: SeededRun, seed: int, faults_min: int = 0) -> Counter[str]:
    """Returns the counts of one run.

    Raises AssertionError, with the seed, if an invariant is violated, the code under test fails, or there were too
    few faults.
    """
    try:
        run.run()
    except (AssertionError, PenstockError) as error:
        raise AssertionError(f"seed {seed}, step {run.counts['steps']}: {error}") from error
    assert run.faults >= faults_min, f"seed {seed} has too few faults: {run.counts}"
    return run.counts


def run_many(run: Callable[[int], Counter[str]], count: int) -> tuple[Counter[str], int]:
    """Runs SEEDS seeds from SEED on (environment variables); returns the sum of their counts, and their number."""
    first = int(os.environ.get("SEED", "1000"))
    count = int(os.environ.get("SEEDS", str(count)))
    total: Counter[str] = Counter()
    for done, seed in enumerate(range(first, first + count), 1):
        total += run(seed)
        if done % PROGRESS == 0:
            print(f"{done} seeds: {dict(total)}", flush=True)  # noqa: T201
    print(f"seeds {first} to {first + count - 1}: {dict(total)}")  # noqa: T201
    return total, count


def check_seen(total: Counter[str], seen: Iterable[str], at_least: int) -> None:
    """Raises AssertionError if one of the events that a simulator should produce is too rare."""
    for name in seen:
        assert total[name] > at_least, f"{name} happened only {total[name]} times"


def find_planted(run: Callable[[int], object], invariant: str, seeds: Iterable[int]) -> None:
    """Raises AssertionError if no run with a planted bug violates the invariant that it should."""
    found = Counter[str]()
    for seed in seeds:
        try:
            run(seed)
        except AssertionError as error:
            found[str(error).partition(": ")[2].partition(":")[0]] += 1
        if found[invariant]:
            return
    raise AssertionError(f"{invariant} was not violated, only {found}")
