"""Any bytes in `__transaction_state`: a coordinator reads them, or raises a PenstockError."""

import random

import pytest

from penstock.foundation.decision import NO_PRODUCER, StateRecord
from penstock.foundation.errors import PenstockError
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.records import DECIDED, TRANSACTION

from .coordinator_harness import SETTINGS

SEEDS = range(10)


def some_record(rng: random.Random) -> StateRecord:
    kind = rng.choice([TRANSACTION, TRANSACTION, DECIDED]).to_bytes(2, "big")
    name = rng.choice([b"a", b"spark/q/0/0.0", b"\xff", b""])
    key = kind + len(name).to_bytes(2, "big") + name
    if not rng.randrange(3):
        key = key[: rng.randrange(len(key))]
    value = rng.choice([0, 0, 1, 2]).to_bytes(2, "big") + bytes(
        rng.choice([0, 0, 0, 1, 2, 5, 255]) for _ in range(rng.randrange(60))
    )
    return StateRecord(key=key, value=rng.choice([value, value, value, None]))


@pytest.mark.parametrize("seed", SEEDS)
def test_any_bytes_are_read_or_refused_and_the_coordinator_goes_on(seed: int) -> None:
    rng = random.Random(seed)
    read = refused = 0
    for _ in range(20):
        machine = TransactionCoordinator(settings=SETTINGS, coordinator_epoch=1)
        for _ in range(50):
            try:
                machine.apply(some_record(rng), NO_PRODUCER)
                read += 1
            except PenstockError:
                refused += 1
        machine.loaded(1000)
        for now_ms in (2000, 10**7, 10**10):
            machine.wake(now_ms)
    assert read > 100
    assert refused > 100
