"""Seeded runs of queues with dead letters. A failing seed is in the test's name and in the message."""

from collections import Counter
from functools import partial

import pytest

from tests.simulation.queue_run import BUGS, QueueRun
from tests.simulation.seeds import check_seen, find_planted, run_many, run_seed

STEPS = 1200
FAULTS_MIN = 10
FIRST_SEEDS = {"new numbers": 6}
"""Where the search for a planted bug begins that takes long to be found: 0 for the others."""


def _run(seed: int, *, bug: str = "") -> Counter[str]:
    run = QueueRun(seed, STEPS, bug=bug)
    return run_seed(run, seed, FAULTS_MIN)


@pytest.mark.parametrize("seed", range(8))
def test_messages_are_worked_off_through_deaths_lost_requests_and_failovers(seed: int) -> None:
    counts = _run(seed)
    assert counts["deliveries"] > counts["sent"] / 2 > 10


@pytest.mark.parametrize(("bug", "invariant"), BUGS.items(), ids=BUGS)
def test_the_simulator_finds_a_bug_that_is_planted(bug: str, invariant: str) -> None:
    first = FIRST_SEEDS.get(bug, 0)
    find_planted(partial(_run, bug=bug), invariant, range(first, first + 60))


@pytest.mark.slow
@pytest.mark.timeout(8 * 3600)
def test_messages_are_worked_off_over_many_seeds() -> None:
    total, count = run_many(_run, 5_000)
    check_seen(
        total,
        (
            "moved",
            "copies_known",
            "copies_stale",
            "restarts",
            "failovers",
            "records_cut",
            "records_compacted",
            "purges",
            "duplicates",
        ),
        count // 2,
    )
    asked = total["old_leaders_asked"]
    assert asked > count, f"old leaders were asked only {asked} times"
    check_seen(total, ("copies_cut", "copies_refused", "records_not_persisted", "jumps", "trims"), count // 20)
