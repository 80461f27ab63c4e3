"""Seeded lives of a group coordinator. A failing seed is in the test's name and in the message."""

import os
from collections import Counter

import pytest

from tests.simulation.group_run import GroupRun

STEPS = 1500
FAULTS_MIN = 10


def _run(seed: int) -> Counter[str]:
    life = GroupRun(seed, STEPS)
    try:
        life.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {life.counts['steps']}: {error}") from error
    assert life.faults >= FAULTS_MIN, f"seed {seed} is tame: {life.counts}"
    return life.counts


@pytest.mark.parametrize("seed", range(20))
def test_a_group_keeps_its_promises_through_deaths_restarts_and_a_bad_network(seed: int) -> None:
    counts = _run(seed)
    assert counts["steps"] >= STEPS
    assert counts["stable_steps"] > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_group_keeps_its_promises_over_many_seeds() -> None:
    first = int(os.environ.get("SEED", "1000"))
    count = int(os.environ.get("SEEDS", "2000"))
    total: Counter[str] = Counter()
    for seed in range(first, first + count):
        total += _run(seed)
    print(f"seeds {first} to {first + count - 1}: {dict(total)}")  # noqa: T201
    for seen in ("deaths", "restarts", "failed_persists", "returns", "leaves", "transactions", "offsets_moved"):
        assert total[seen] > count // 2, f"a tame simulator: {seen} happened {total[seen]} times"
