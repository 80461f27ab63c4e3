"""Seeded lives of a transaction coordinator. A failing seed is in the test's name and in the message."""

import os
from collections import Counter

import pytest

from tests.simulation.transaction_run import TransactionRun

STEPS = 1500
FAULTS_MIN = 10


def _run(seed: int, **options: bool) -> Counter[str]:
    life = TransactionRun(seed, STEPS, **options)
    try:
        life.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {life.counts['steps']}: {error}") from error
    assert life.faults >= FAULTS_MIN, f"seed {seed} is tame: {life.counts}"
    return life.counts


@pytest.mark.parametrize("seed", range(20))
def test_transactions_are_all_or_nothing_through_deaths_lost_messages_and_failovers(seed: int) -> None:
    counts = _run(seed)
    assert counts["commits"] + counts["aborts"] + counts["aborts_by_time"] >= 3


def test_the_simulator_finds_out_when_a_set_of_transactions_can_be_torn() -> None:
    """Where the records of one decision may be persisted in part, some life shows it."""
    found = set()
    for seed in range(10):
        try:
            _run(seed, tears_batches=True)
        except AssertionError as error:
            found.add(str(error).partition(": ")[2].partition(":")[0])
    assert "SetCommittedWhole" in found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_transactions_are_all_or_nothing_over_many_seeds() -> None:
    first = int(os.environ.get("SEED", "1000"))
    count = int(os.environ.get("SEEDS", "2000"))
    total: Counter[str] = Counter()
    for seed in range(first, first + count):
        total += _run(seed)
    print(f"seeds {first} to {first + count - 1}: {dict(total)}")  # noqa: T201
    for seen in ("commits", "aborts", "aborts_by_time", "fenced", "came_back", "restarts", "failovers", "expiries"):
        assert total[seen] > count // 2, f"a tame simulator: {seen} happened {total[seen]} times"
    for seen in ("sets_committed", "sets_repeated", "sets_broken", "drivers_killed", "drivers_between", "sets_stale"):
        assert total[seen] > count // 4, f"a tame simulator: {seen} happened {total[seen]} times"
    assert total["rotations"] > count // 10, f"a tame simulator: {total['rotations']} rotations"
