"""Seeded runs of groups that migrate between protocols. A failing seed is in the test's name and in the message."""

from collections import Counter

import pytest

from tests.simulation.group_machines import targets_in_pieces
from tests.simulation.group_migration_run import GroupMigrationRun
from tests.simulation.seeds import check_seen, run_many, run_seed

STEPS = 1500
FAULTS_MIN = 10


def _run(seed: int) -> Counter[str]:
    run = GroupMigrationRun(seed, STEPS)
    with targets_in_pieces(seed % 2 == 1):
        run_seed(run, seed, FAULTS_MIN)
    assert run.counts["steps"] >= STEPS
    return run.counts


@pytest.mark.parametrize("seed", range(8))
def test_invariants_hold_while_members_change_the_protocol(seed: int) -> None:
    assert _run(seed)["replaced"] > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_invariants_hold_while_members_change_the_protocol_over_many_seeds() -> None:
    total, count = run_many(_run, 2_000)
    check_seen(
        total,
        (
            "deaths",
            "restarts",
            "failed_persists",
            "upgrades",
            "downgrades",
            "classic_member_steps",
            "UNREVOKED_PARTITIONS",
            "UNRELEASED_PARTITIONS",
            "offsets_moved",
        ),
        count // 2,
    )
