"""Seeded runs of a transaction coordinator. A failing seed is in the test's name and in the message."""

from collections import Counter

import pytest

from tests.simulation.seeds import check_seen, find_planted, run_many, run_seed
from tests.simulation.transaction_run import TransactionRun

STEPS = 1500
FAULTS_MIN = 10


def _run(seed: int, **options: bool) -> Counter[str]:
    run = TransactionRun(seed, STEPS, **options)
    return run_seed(run, seed, FAULTS_MIN)


@pytest.mark.parametrize("seed", range(8))
def test_transactions_are_all_or_nothing_through_deaths_lost_messages_and_failovers(seed: int) -> None:
    counts = _run(seed)
    assert counts["commits"] + counts["aborts"] + counts["aborts_by_time"] >= 3


def test_the_simulator_finds_out_when_a_set_of_transactions_can_be_torn() -> None:
    """Where the records of one decision may be persisted in part, some run shows it."""
    find_planted(lambda seed: _run(seed, tears_batches=True), "SetCommittedWhole", range(10))


def test_the_simulator_finds_out_when_tasks_of_closed_queries_begin_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("add_partitions", "init_producer_id"):
        monkeypatch.setattr(f"penstock.transactions.{module}.check_query_not_closed", lambda *_: None)
    find_planted(_run, "ClosedBeginsNothing", range(20))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_transactions_are_all_or_nothing_over_many_seeds() -> None:
    total, count = run_many(_run, 2_000)
    check_seen(
        total,
        ("commits", "aborts", "aborts_by_time", "fenced", "came_back", "restarts", "failovers", "expiries"),
        count // 2,
    )
    check_seen(
        total,
        ("sets_committed", "sets_repeated", "sets_broken", "drivers_killed", "drivers_between", "sets_stale"),
        count // 4,
    )
    check_seen(total, ("queries_closed",), count // 10)
    check_seen(total, ("drivers_closed",), count // 25)
    assert total["rotations"] > count // 10, f"only {total['rotations']} rotations"
