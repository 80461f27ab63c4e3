"""Two power losses in a row: records that the first recovery truncated do not come back."""

from random import Random

import pytest

from penstock.log.log import Log
from tests.simulation.disk import PAGE, FakeDisk

from .builders import append, batch, open_at, values_in

OVERHEAD = len(batch(b""))
SEEDS = 150


def fill(log: Log, history: str, count: int) -> list[bytes]:
    """Appends batches that are a page each, as messages of one size are; their values."""
    values = []
    for _ in range(count):
        value = f"{history}{log.end_offset}".encode()
        padded = value.ljust(PAGE - OVERHEAD - 2, b".")
        assert len(batch(padded)) == PAGE
        append(log, padded)
        values.append(padded)
    return values


@pytest.mark.parametrize("segment_bytes", [2 * PAGE, 1 << 20])
def test_truncated_records_stay_gone(segment_bytes: int) -> None:
    cut = 0
    for seed in range(SEEDS):
        disk = FakeDisk(Random(seed))
        log = open_at(disk, segment_bytes=segment_bytes)
        expected = fill(log, "old", 2)
        log.sync()
        expected += fill(log, "old", 10)
        disk.lose_power()
        log = open_at(disk, boot="second", segment_bytes=segment_bytes)
        assert values_in(log) == expected[: log.end_offset], f"seed={seed}"
        cut += log.end_offset < len(expected)
        expected = expected[: log.end_offset] + fill(log, "new", 10)
        disk.lose_power()
        log = open_at(disk, boot="third", segment_bytes=segment_bytes)
        assert values_in(log) == expected[: log.end_offset], f"seed={seed}"
    assert cut > SEEDS // 3
