"""Any bytes in `__consumer_offsets`: a group coordinator reads them, or raises a PenstockError."""

import random

import pytest

from penstock.foundation.decision import NO_PRODUCER, ClientRequest, StateRecord
from penstock.foundation.errors import PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.wire.messages.list_groups import ListGroupsRequest

from .coordinator_harness import image_of, settings_of, topic_of

SEEDS = range(20)
KINDS = range(20)
PRODUCER = 5


def coordinator() -> GroupCoordinator:
    return GroupCoordinator(
        settings=settings_of(), image=image_of(topic_of("orders")), new_member_id=lambda name: name
    )


def some_key(rng: random.Random) -> bytes:
    kind = rng.choice(KINDS).to_bytes(2, "big")
    match rng.randrange(3):
        case 0:
            return kind[: rng.randrange(3)]
        case 1:
            return kind + rng.randbytes(rng.randrange(12))
    names = [rng.choice([b"g", b"h", b"\xff"]), rng.choice([b"m", b"n", b""])]
    return kind + b"".join(len(name).to_bytes(2, "big") + name for name in names) + bytes(rng.choice([0, 0, 4]))


def some_value(rng: random.Random) -> bytes | None:
    if not rng.randrange(8):
        return None
    version = rng.choice([0, 0, 1, 2, 3, 4, 5]).to_bytes(2, "big")
    return version + bytes(rng.choice([0, 0, 0, 1, 2, 3, 255]) for _ in range(rng.randrange(60)))


@pytest.mark.parametrize("seed", SEEDS)
def test_any_bytes_are_read_or_refused_and_the_coordinator_goes_on(seed: int) -> None:
    rng = random.Random(seed)
    read = refused = 0
    for _ in range(20):
        machine = coordinator()
        for _ in range(50):
            record = StateRecord(key=some_key(rng), value=some_value(rng))
            try:
                machine.apply(record, rng.choice([NO_PRODUCER, PRODUCER]))
                read += 1
            except PenstockError:
                refused += 1
        machine.end_transaction(PRODUCER, committed=True)
        machine.loaded(1000)
        for now_ms in (2000, 10**7, 10**10):
            machine.wake(now_ms)
        assert machine.decide(1, ClientRequest(ListGroupsRequest(), 5, "", ""), 10**10).replies
    assert read > 100
    assert refused > 100
