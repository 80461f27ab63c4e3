"""Seeded lives of a transaction coordinator. A failing seed is in the test's name and in the message."""

import os
from collections import Counter

import pytest

from tests.simulation.transaction_run import TransactionRun

STEPS = 1000
FAULTS_MIN = 10


def _run(seed: int) -> Counter[str]:
    life = TransactionRun(seed, STEPS)
    try:
        life.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {life.counts['steps']}: {error}") from error
    assert life.counts["steps"] >= STEPS
    assert life.faults >= FAULTS_MIN, f"seed {seed} is tame: {life.counts}"
    return life.counts


@pytest.mark.parametrize("seed", range(20))
def test_transactions_are_all_or_nothing_through_deaths_lost_messages_and_failovers(seed: int) -> None:
    counts = _run(seed)
    assert counts["initialised"] >= 3
