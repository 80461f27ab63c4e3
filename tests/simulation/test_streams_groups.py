"""Seeded runs of streams groups. A failing seed is in the test's name and in the message."""

from collections import Counter

import pytest

from tests.simulation.group_machines import targets_in_pieces
from tests.simulation.seeds import check_seen, run_many, run_seed
from tests.simulation.streams_group_run import StreamsGroupRun

STEPS = 1000
FAULTS_MIN = 10


def _run(seed: int) -> Counter[str]:
    run = StreamsGroupRun(seed, STEPS)
    with targets_in_pieces(seed % 2 == 1):
        run_seed(run, seed, FAULTS_MIN)
    assert run.counts["steps"] >= STEPS
    return run.counts


@pytest.mark.parametrize("seed", range(8))
def test_a_task_has_one_owner_despite_faults(seed: int) -> None:
    counts = _run(seed)
    assert counts["restarts"] >= 3
    assert counts["kills"] >= 3


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_task_has_one_owner_over_many_seeds() -> None:
    total, count = run_many(_run, 2_000)
    check_seen(
        total,
        (
            "kills",
            "restarts",
            "cuts",
            "hangs",
            "not_persisted",
            "session",
            "rebalance",
            "fenced",
            "returns",
            "created",
            "standbys",
            "topics_deleted",
            "topics_grown",
            "UNREVOKED_PARTITIONS",
            "UNRELEASED_PARTITIONS",
        ),
        count // 4,
    )
