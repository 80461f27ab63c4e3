"""Seeded lives of streams groups. A failing seed is in the test's name and in the message."""

from collections import Counter

import pytest

from tests.simulation.consumer_machine import targets_in_pieces
from tests.simulation.seeds import check_seen, run_life, run_many
from tests.simulation.streams_group_run import StreamsGroupRun

STEPS = 1000
FAULTS_MIN = 10


def _run(seed: int) -> Counter[str]:
    life = StreamsGroupRun(seed, STEPS)
    with targets_in_pieces(seed % 2 == 1):
        run_life(life, seed, FAULTS_MIN)
    assert life.counts["steps"] >= STEPS
    return life.counts


@pytest.mark.parametrize("seed", range(8))
def test_a_task_has_one_owner_whatever_happens(seed: int) -> None:
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
