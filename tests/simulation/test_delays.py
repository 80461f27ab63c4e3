"""Seeded lives of delayed messages. A failing seed is in the test's name and in the message."""

import os
from collections import Counter

import pytest

from tests.simulation.delay_bugs import BUGS
from tests.simulation.delay_run import DelayRun

STEPS = 5000
FAULTS_MIN = 10
PROGRESS = 500


def _run(seed: int, *, bug: str = "") -> Counter[str]:
    life = DelayRun(seed, STEPS, bug=bug)
    try:
        life.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {life.counts['steps']}: {error}") from error
    assert life.faults >= FAULTS_MIN, f"seed {seed} is tame: {life.counts}"
    return life.counts


@pytest.mark.parametrize("seed", range(20))
def test_delayed_messages_come_once_and_in_time_through_deaths_power_loss_and_failovers(seed: int) -> None:
    assert _run(seed)["delivered"] > 5


@pytest.mark.parametrize(("bug", "invariant"), BUGS.items(), ids=BUGS)
def test_the_simulator_finds_a_bug_that_is_planted(bug: str, invariant: str) -> None:
    found = Counter[str]()
    for seed in range(60):
        try:
            _run(seed, bug=bug)
        except AssertionError as error:
            found[str(error).partition(": ")[2].partition(":")[0]] += 1
        if found[invariant]:
            break
    assert found[invariant], f"{bug} was not seen as {invariant}, only {found}"


@pytest.mark.slow
@pytest.mark.timeout(8 * 3600)
def test_delayed_messages_come_once_and_in_time_over_many_seeds() -> None:
    first = int(os.environ.get("SEED", "1000"))
    count = int(os.environ.get("SEEDS", "5000"))
    total: Counter[str] = Counter()
    for done, seed in enumerate(range(first, first + count), 1):
        total += _run(seed)
        if done % PROGRESS == 0:
            print(f"{done} seeds: {dict(total)}", flush=True)  # noqa: T201
    print(f"seeds {first} to {first + count - 1}: {dict(total)}")  # noqa: T201
    for seen in (
        "elections",
        "isr_changes",
        "isrs_left",
        "torn_writes",
        "power_losses",
        "compacted",
        "trimmed",
        "jump",
        "cut",
        "delivered",
    ):
        assert total[seen] > count // 2, f"a tame simulator: {seen} happened {total[seen]} times"
