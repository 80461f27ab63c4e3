"""Running simulated lives by their seeds: one, many, or until a planted bug is found. A failure names its seed."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from penstock.foundation.errors import PenstockError

PROGRESS = 100


class Life(Protocol):
    """One seeded run of a simulator."""

    counts: Counter[str]

    @property
    def faults(self) -> int: ...

    def run(self) -> None: ...


def run_life(life: Life, seed: int, faults_min: int = 0) -> Counter[str]:
    """Returns what a life has seen. Raises AssertionError, with the seed, if an invariant is violated, the code under
    test fails, or there were too few faults."""
    try:
        life.run()
    except (AssertionError, PenstockError) as error:
        raise AssertionError(f"seed {seed}, step {life.counts['steps']}: {error}") from error
    assert life.faults >= faults_min, f"seed {seed} is tame: {life.counts}"
    return life.counts


def run_many(run: Callable[[int], Counter[str]], count: int) -> tuple[Counter[str], int]:
    """Runs SEEDS lives from SEED on (environment variables); returns what they have seen, and their number."""
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
    """Raises AssertionError if something that a simulator is there for has hardly happened."""
    for name in seen:
        assert total[name] > at_least, f"a tame simulator: {name} happened {total[name]} times"


def find_planted(run: Callable[[int], object], invariant: str, seeds: Iterable[int]) -> None:
    """Raises AssertionError if no life with a planted bug violates the invariant that it should."""
    found = Counter[str]()
    for seed in seeds:
        try:
            run(seed)
        except AssertionError as error:
            found[str(error).partition(": ")[2].partition(":")[0]] += 1
        if found[invariant]:
            return
    raise AssertionError(f"{invariant} was not violated, only {found}")
