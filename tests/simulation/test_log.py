"""Seeded lives of a log. A failing seed is in the test's name and in the message."""

import os
from collections import Counter

import pytest

from tests.simulation.log_run import LogRun

STEPS = 1200


def _run(seed: int) -> Counter[str]:
    life = LogRun(seed, STEPS)
    try:
        life.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {life.counts['steps']}: {error}") from error
    return life.counts


@pytest.mark.parametrize("seed", range(25))
def test_a_log_keeps_its_promises_through_kills_power_loss_failed_fsyncs_and_full_disks(seed: int) -> None:
    counts = _run(seed)
    assert counts["kills"] >= 3


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_log_keeps_its_promises_over_many_seeds() -> None:
    first = int(os.environ.get("SEED", "1000"))
    count = int(os.environ.get("SEEDS", "1000"))
    total: Counter[str] = Counter()
    for seed in range(first, first + count):
        total += _run(seed)
    print(f"seeds {first} to {first + count - 1}: {dict(total)}")  # noqa: T201
    for seen in (
        "kills",
        "power_losses",
        "full_disks",
        "failed_syncs",
        "cut_tails",
        "compactions",
        "truncations",
        "repeats_recognised",
        "aborts",
        "held_back",
        "refused",
        "expired",
    ):
        assert total[seen] > count // 4, f"a tame simulator: {seen} happened {total[seen]} times"
