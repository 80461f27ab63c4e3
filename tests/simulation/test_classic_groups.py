"""Seeded runs of classic groups. A failing seed is in the test's name and in the message."""

from collections import Counter

import pytest

from tests.simulation.classic_group_run import ClassicGroupRun
from tests.simulation.seeds import check_seen, run_many, run_seed

STEPS = 1500
FAULTS_MIN = 10


def _run(seed: int) -> Counter[str]:
    run = ClassicGroupRun(seed, STEPS)
    return run_seed(run, seed, FAULTS_MIN)


@pytest.mark.parametrize("seed", range(8))
def test_invariants_hold_through_deaths_restarts_and_a_bad_network(seed: int) -> None:
    counts = _run(seed)
    assert counts["steps"] >= STEPS
    assert counts["stable_steps"] > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_invariants_hold_over_many_seeds() -> None:
    total, count = run_many(_run, 2_000)
    check_seen(
        total,
        ("deaths", "restarts", "failed_persists", "returns", "leaves", "transactions", "offsets_moved"),
        count // 2,
    )
