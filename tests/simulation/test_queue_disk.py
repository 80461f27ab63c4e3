"""Seeded lives of a queue partition on a failing disk. A failing seed is in the test's name and in the message."""

import os
from collections import Counter

import pytest

from tests.simulation.queue_disk_bugs import BUGS
from tests.simulation.queue_disk_run import QueueDiskRun

STEPS = 1500
FAULTS_MIN = 5
PROGRESS = 500


def _run(seed: int, *, bug: str = "") -> Counter[str]:
    life = QueueDiskRun(seed, STEPS, bug=bug)
    try:
        life.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {life.counts['steps']}: {error}") from error
    assert life.faults >= FAULTS_MIN, f"seed {seed} is tame: {life.counts}"
    return life.counts


@pytest.mark.parametrize("seed", range(8))
def test_a_queue_partition_survives_kills_and_power_loss(seed: int) -> None:
    counts = _run(seed)
    assert counts["deliveries"] > 50


@pytest.mark.parametrize("bug", BUGS)
def test_the_simulator_finds_a_planted_bug(bug: str) -> None:
    invariant, first = BUGS[bug]
    found = Counter[str]()
    for seed in range(first, first + 60):
        try:
            _run(seed, bug=bug)
        except AssertionError as error:
            found[str(error).partition(": ")[2].partition(":")[0]] += 1
        if found[invariant]:
            break
    assert found[invariant], f"{bug} was not seen as {invariant}, only {found}"


@pytest.mark.slow
@pytest.mark.timeout(8 * 3600)
def test_a_queue_partition_survives_kills_and_power_loss_over_many_seeds() -> None:
    first = int(os.environ.get("SEED", "1000"))
    count = int(os.environ.get("SEEDS", "5000"))
    total: Counter[str] = Counter()
    for done, seed in enumerate(range(first, first + count), 1):
        total += _run(seed)
        if done % PROGRESS == 0:
            print(f"{done} seeds: {dict(total)}", flush=True)  # noqa: T201
    print(f"seeds {first} to {first + count - 1}: {dict(total)}")  # noqa: T201
    for seen in ("kills", "power_losses", "torn_writes", "trims", "first_drops", "drops", "gaps", "compacted"):
        assert total[seen] > count // 2, f"a tame simulator: {seen} happened {total[seen]} times"
