"""Seeded runs of delayed messages. A failing seed is in the test's name and in the message."""

from collections import Counter
from functools import partial

import pytest

from tests.simulation.delay_bugs import BUGS
from tests.simulation.delay_run import DelayRun
from tests.simulation.seeds import check_seen, find_planted, run_many, run_seed

STEPS = 5000
FAULTS_MIN = 10
FIRST_SEEDS = {
    "cancels before it is committed": 9,
    "acknowledges before the sync": 2,
    "notes what is not committed": 31,
}
"""Where the search for a planted bug begins that takes long to be found: 0 for the others."""


def _run(seed: int, *, bug: str = "") -> Counter[str]:
    run = DelayRun(seed, STEPS, bug=bug)
    return run_seed(run, seed, FAULTS_MIN)


@pytest.mark.parametrize("seed", range(8))
def test_delayed_messages_come_once_and_in_time_through_deaths_power_loss_and_failovers(seed: int) -> None:
    assert _run(seed)["delivered"] > 5


@pytest.mark.parametrize(("bug", "invariant"), BUGS.items(), ids=BUGS)
def test_the_simulator_finds_a_bug_that_is_planted(bug: str, invariant: str) -> None:
    first = FIRST_SEEDS.get(bug, 0)
    find_planted(partial(_run, bug=bug), invariant, range(first, first + 60))


@pytest.mark.slow
@pytest.mark.timeout(8 * 3600)
def test_delayed_messages_come_once_and_in_time_over_many_seeds() -> None:
    total, count = run_many(_run, 5_000)
    check_seen(
        total,
        (
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
        ),
        count // 2,
    )
