"""Seeded runs of a log. A failing seed is in the test's name and in the message."""

from collections import Counter

import pytest

from tests.simulation.log_run import LogRun
from tests.simulation.seeds import check_seen, run_many, run_seed

STEPS = 1200


def _run(seed: int) -> Counter[str]:
    run = LogRun(seed, STEPS)
    return run_seed(run, seed)


@pytest.mark.parametrize("seed", range(10))
def test_invariants_hold_through_kills_power_loss_failed_fsyncs_and_full_disks(seed: int) -> None:
    counts = _run(seed)
    assert counts["kills"] >= 3


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_invariants_hold_over_many_seeds() -> None:
    total, count = run_many(_run, 1_000)
    check_seen(
        total,
        (
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
        ),
        count // 4,
    )
