"""Seeded runs of the schema registry. A failing seed is in the test's name and in the message."""

from collections import Counter
from functools import partial

import pytest

from tests.simulation.registry_run import BUGS, RegistryRun
from tests.simulation.seeds import check_seen, find_planted, run_many, run_seed

STEPS = 1500
FAULTS_MIN = 10


def _run(seed: int, *, bug: str = "") -> Counter[str]:
    run = RegistryRun(seed, STEPS, bug=bug)
    return run_seed(run, seed, FAULTS_MIN)


@pytest.mark.parametrize("seed", range(8))
def test_ids_and_versions_keep_their_meaning_through_failovers_and_compaction(seed: int) -> None:
    assert _run(seed)["registered"] > 50


@pytest.mark.parametrize(("bug", "invariant"), BUGS.items(), ids=BUGS)
def test_the_simulator_finds_a_bug_that_is_planted(bug: str, invariant: str) -> None:
    first = 9 if bug in ("early replies", "ids of what is there") else 0  # earlier seeds do not find them
    find_planted(partial(_run, bug=bug), invariant, range(first, first + 60))


@pytest.mark.slow
@pytest.mark.timeout(8 * 3600)
def test_ids_and_versions_keep_their_meaning_over_many_seeds() -> None:
    total, count = run_many(_run, 5_000)
    seen = ("restarts", "failovers", "compactions", "records_cut", "records_compacted", "checked_again", "refused")
    check_seen(total, (*seen, "Register", "DeleteVersion", "DeleteSubject", "not_answered"), count // 2)
    check_seen(total, ("not_persisted",), count // 20)
