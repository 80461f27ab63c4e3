"""Seeded lives of queues with dead letters. A failing seed is in the test's name and in the message."""

import os
from collections import Counter

import pytest

from tests.simulation.queue_run import BUGS, QueueRun

STEPS = 1200
FAULTS_MIN = 10
PROGRESS = 100


def _run(seed: int, *, bug: str = "") -> Counter[str]:
    life = QueueRun(seed, STEPS, bug=bug)
    try:
        life.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {life.counts['steps']}: {error}") from error
    assert life.faults >= FAULTS_MIN, f"seed {seed} is tame: {life.counts}"
    return life.counts


@pytest.mark.parametrize("seed", range(20))
def test_messages_are_worked_off_through_deaths_lost_requests_and_failovers(seed: int) -> None:
    counts = _run(seed)
    assert counts["deliveries"] > counts["sent"] / 2 > 10


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
def test_messages_are_worked_off_over_many_seeds() -> None:
    first = int(os.environ.get("SEED", "1000"))
    count = int(os.environ.get("SEEDS", "5000"))
    total: Counter[str] = Counter()
    for done, seed in enumerate(range(first, first + count), 1):
        total += _run(seed)
        if done % PROGRESS == 0:
            print(f"{done} seeds: {dict(total)}", flush=True)  # noqa: T201
    print(f"seeds {first} to {first + count - 1}: {dict(total)}")  # noqa: T201
    for seen in (
        "moved",
        "copies_known",
        "copies_stale",
        "restarts",
        "failovers",
        "records_cut",
        "records_compacted",
    ):
        assert total[seen] > count // 2, f"a tame simulator: {seen} happened {total[seen]} times"
    asked = total["old_leaders_asked"]
    assert asked > count, f"a tame simulator: old leaders were asked {asked} times"
    for seen in ("copies_cut", "copies_refused", "records_not_persisted", "jumps", "trims"):
        assert total[seen] > count // 20, f"a tame simulator: {seen} happened {total[seen]} times"
