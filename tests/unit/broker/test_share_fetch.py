"""Share groups acquire messages without decompressing batches, and get the batches as they are in the log."""

import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.queues.message_reader import Window
from penstock.broker.share.delivery_terms import DeliveryTerms
from penstock.broker.share.partition import SharePartition
from penstock.foundation.ids import TopicPartition
from penstock.queues.commands import Acquired, Fresh
from penstock.queues.settings import DeliverySettings
from penstock.records.batch import assemble, batches
from penstock.records.compression import Codec, compress
from penstock.replication.partition import Partition

from ..log.builders import NOW_MS, batch, open_at

GZIP = 1
ZSTD = 4
WHOLE_MAX = 50
TERMS = DeliveryTerms(
    lock_ms=1000, delay_ms=0, settings=DeliverySettings(), is_stable=False, may_renew=True, offset_reset="earliest"
)


def _partition(sizes: list[int]) -> Partition:
    """A log with batches of these sizes."""
    made = Partition(topic_id=b"\1" * 16, name=TopicPartition("jobs", 0), leader_epoch=0, log=open_at())
    for size in sizes:
        made.append(batch(*(b"v%d" % index for index in range(size))), NOW_MS)
    return made


def _opened(partition: Partition, offset: int, count: int, whole: bool) -> Any:
    window = Window(partition, stable=False)
    window.seek(offset)
    window.fill(count)
    return window.fresh(count, 0, whole_max=WHOLE_MAX if whole else 0)


def _closed(partition: Partition, offset: int, count: int, whole: bool) -> Any:
    window = Window(partition, stable=False)
    window.seek(offset)
    window.fill(count)
    return window.fresh(count, None, whole_max=WHOLE_MAX if whole else 0)


@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=10),
    start=st.integers(0, 40),
    count=st.integers(1, 30),
    whole=st.booleans(),
)
def test_a_closed_batch_tells_the_same_messages_as_an_open_one(
    sizes: list[int], start: int, count: int, whole: bool
) -> None:
    partition = _partition(sizes)
    offset = min(start, sum(sizes))
    opened, closed = _opened(partition, offset, count, whole), _closed(partition, offset, count, whole)
    assert _offsets(closed.fresh) == _offsets(opened.fresh)
    assert closed.end == opened.end
    assert {one.due_ms for one in closed.fresh} <= {0}


def test_a_batch_that_cannot_be_decompressed_is_acquired_too() -> None:
    partition = _partition([2])
    sealed = assemble(
        b"this was never compressed",
        count=3,
        attributes=GZIP,
        base_offset=0,
        last_offset_delta=2,
        leader_epoch=-1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    partition.append(sealed, NOW_MS)
    assert _offsets(_opened(partition, 0, 9, False).fresh) == [0, 1]
    assert _offsets(_closed(partition, 0, 9, False).fresh) == [0, 1, 2, 3, 4], "it was not opened"
    assert _offsets(_closed(partition, 3, 9, False).fresh) == [3, 4]


def _offsets(fresh: Iterable[Fresh]) -> list[int]:
    return [offset for one in fresh for offset in range(one.offset, one.offset + one.run)]


@pytest.mark.parametrize("count", [20_000_000, 2**31 - 1])
def test_a_batch_that_claims_millions_of_records_is_checked_before_it_is_acquired(count: int) -> None:
    """The count is the producer's word, of which the broker knows nothing while the batch is closed."""
    partition = _partition([2])
    lie = assemble(
        compress(Codec.ZSTD, b""),
        count=count,
        attributes=ZSTD,
        base_offset=0,
        last_offset_delta=count - 1,
        leader_epoch=-1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    partition.append(lie, NOW_MS)
    partition.append(batch(b"after"), NOW_MS)
    for look in (_opened, _closed):
        tracemalloc.start()
        first = look(partition, 0, 10_000, True)
        rest = look(partition, first.end, 10_000, True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert _offsets(first.fresh + rest.fresh) == [0, 1, 2 + count]
        assert peak < 1_000_000


def test_many_records_of_a_closed_batch_are_one_entry() -> None:
    partition = _partition([5000])
    (one,) = _closed(partition, 0, 10, True).fresh
    assert (one.offset, one.run) == (0, WHOLE_MAX)
    (one,) = _closed(partition, 100, 10, False).fresh
    assert (one.offset, one.run) == (100, 10)


@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    chosen=st.lists(st.booleans(), min_size=84, max_size=84),
)
def test_exactly_the_batches_are_read_that_hold_what_was_acquired(sizes: list[int], chosen: list[bool]) -> None:
    partition = _partition(sizes)
    offsets = [offset for offset in range(sum(sizes)) if chosen[offset]]
    ranges = tuple(Acquired(offset, offset, 1, 0, 0) for offset in offsets)
    found = SharePartition(partition, TERMS, None).read(ranges)
    spans = [(header.base_offset, header.next_offset) for _, header in batches(found.records)]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    wanted = [
        (start, start + size)
        for start, size in zip(starts, sizes, strict=True)
        if any(start <= offset < start + size for offset in offsets)
    ]
    assert spans == wanted
    assert found.ends == [end - 1 for _, end in wanted]


def test_trimmed_messages_are_left_out() -> None:
    partition = _partition([2] * 10)
    partition.log.trim(5)
    found = SharePartition(partition, TERMS, None).read((Acquired(0, 3, 1, 0, 0), Acquired(4, 7, 1, 0, 0)))
    assert found.ends == [5, 7]


def test_adjacent_batches_are_sent_in_one_piece() -> None:
    partition = _partition([2] * 10)
    assert len(SharePartition(partition, TERMS, None).read((Acquired(0, 19, 1, 0, 0),)).pieces) == 1
    apart = SharePartition(partition, TERMS, None).read((Acquired(0, 1, 1, 0, 0), Acquired(6, 6, 1, 0, 0)))
    assert len(apart.pieces) == 2
