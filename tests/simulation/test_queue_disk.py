"""Seeded runs of a queue partition on a failing disk. A failing seed is in the test's name and in the message."""

from collections import Counter
from functools import partial

import pytest

from tests.simulation.queue_disk_bugs import BUGS
from tests.simulation.queue_disk_run import QueueDiskRun
from tests.simulation.seeds import check_seen, find_planted, run_many, run_seed

STEPS = 1500
FAULTS_MIN = 5


def _run(seed: int, *, bug: str = "") -> Counter[str]:
    run = QueueDiskRun(seed, STEPS, bug=bug)
    return run_seed(run, seed, FAULTS_MIN)


@pytest.mark.parametrize("seed", range(8))
def test_a_queue_partition_survives_kills_and_power_loss(seed: int) -> None:
    counts = _run(seed)
    assert counts["deliveries"] > 50


@pytest.mark.parametrize("bug", BUGS)
def test_the_simulator_finds_a_planted_bug(bug: str) -> None:
    invariant, first = BUGS[bug]
    find_planted(partial(_run, bug=bug), invariant, range(first, first + 60))


@pytest.mark.slow
@pytest.mark.timeout(8 * 3600)
def test_a_queue_partition_survives_kills_and_power_loss_over_many_seeds() -> None:
    total, count = run_many(_run, 5_000)
    check_seen(
        total,
        (
            *("kills", "power_losses", "torn_writes", "trims", "first_drops", "drops", "gaps", "compacted"),
            *("purges", "duplicates"),
        ),
        count // 2,
    )
