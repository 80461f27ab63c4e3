"""Which open transactions bound the last stable offset, and what compaction needs to know of them."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.transactions import AbortedTransaction, CleanedTransactions, OpenTransactions
from penstock.records.batch import BatchHeader, read_header
from penstock.records.build import Marker
from tests.examples import examples

from .builders import batch, marker_of, sent

COMMIT, ABORT = Marker(True, 0), Marker(False, 0)


# -- open transactions


def test_the_oldest_open_transaction_holds_back_readers() -> None:
    found = OpenTransactions()
    assert (found.first_offset, found.first_unstable_offset(100)) == (None, None)
    for first in (10, 20, 30):
        found.begin(first)
    found.end(20, 40)
    assert (found.first_offset, found.first_unstable_offset(100), len(found)) == (10, 10, 2)
    found.end(10, 50)
    assert (found.first_offset, found.first_unstable_offset(100), len(found)) == (30, 30, 1)
    found.end(30, 60)
    assert (found.first_offset, found.first_unstable_offset(100), len(found)) == (None, None, 0)


def test_a_transaction_is_decided_when_its_marker_is_below_the_high_watermark() -> None:
    found = OpenTransactions()
    found.begin(10)
    found.end(10, 20)
    assert found.first_offset is None
    assert not found.is_empty
    assert found.first_unstable_offset(10) == 10
    assert found.first_unstable_offset(20) == 10, "the marker itself is at 20"
    assert found.first_unstable_offset(21) is None
    assert found.is_empty


def test_an_older_one_whose_marker_is_late_outlasts_a_younger_one_that_is_open() -> None:
    found = OpenTransactions()
    found.begin(10)
    found.begin(15)
    found.end(10, 20)
    assert found.first_unstable_offset(20) == 10
    assert found.first_unstable_offset(21) == 15


def test_the_oldest_but_one_is_found() -> None:
    found = OpenTransactions()
    found.begin(10)
    assert found.first_except(10) is None
    found.begin(20)
    assert (found.first_except(10), found.first_except(20)) == (20, 10)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=60), st.lists(st.integers(0, 60)))
@examples(200, deadline=None)
def test_any_order_of_beginnings_and_ends_agrees_with_a_list(
    steps: list[tuple[int, int]], watermarks: list[int]
) -> None:
    found, open_, ended = OpenTransactions(), {}, []
    high_watermark = 0
    for offset, (producer, what) in enumerate(steps):
        if producer not in open_:
            open_[producer] = offset
            found.begin(offset)
        elif what:
            ended.append((open_[producer], offset))
            found.end(open_.pop(producer), offset)
        if watermarks:
            high_watermark = min(offset + 1, max(high_watermark, watermarks.pop()))
        undecided = [*open_.values(), *(first for first, last in ended if last >= high_watermark)]
        assert found.first_unstable_offset(high_watermark) == min(undecided, default=None)
        assert found.first_offset == min(open_.values(), default=None)


# -- what compaction follows


def data(offset: int, producer_id: int = 7, transactional: bool = True) -> BatchHeader:
    return read_header(sent(producer_id, 0, b"v", base_offset=offset, transactional=transactional))


def marker(offset: int, producer_id: int = 7) -> BatchHeader:
    return read_header(marker_of(producer_id))._replace(base_offset=offset)


def cleaning(aborted: Iterable[AbortedTransaction] = ()) -> CleanedTransactions:
    found = CleanedTransactions()
    found.add_aborted(aborted)
    return found


def test_batches_between_the_first_of_an_aborted_transaction_and_its_marker_are_aborted() -> None:
    aborted = AbortedTransaction(7, 10, 20, 21)
    found = cleaning([aborted])
    assert not found.is_aborted(data(5))
    assert found.end(marker(6), COMMIT) == (True, None)
    assert found.is_aborted(data(10))
    assert not found.is_aborted(data(11, producer_id=8)), "others are not"
    assert not found.is_aborted(read_header(batch(base_offset=12))), "nor is a batch without a transaction"
    assert found.is_aborted(data(15))
    assert found.end(marker(20), ABORT) == (True, aborted)
    assert not found.is_aborted(data(21))


def test_a_transaction_may_have_begun_before_what_is_read() -> None:
    found = cleaning([AbortedTransaction(7, 10, 20, 21)])
    assert found.is_aborted(data(15))


def test_a_transaction_that_is_expected_twice_is_there_once() -> None:
    aborted = AbortedTransaction(7, 10, 20, 21)
    found = cleaning([aborted, AbortedTransaction(7, 30, 40, 41)])
    assert found.is_aborted(data(10))
    found.add_aborted([aborted])
    assert found.is_aborted(data(15))
    assert found.end(marker(20), ABORT) == (True, aborted)
    assert not found.is_aborted(data(25))


def test_a_marker_is_needed_while_there_are_batches_of_its_transaction() -> None:
    found = cleaning([AbortedTransaction(8, 3, 8, 9)])
    found.is_aborted(data(1))
    assert found.end(marker(2), COMMIT) == (True, None)
    assert found.end(marker(3), COMMIT) == (False, None), "it was ended already"
    assert found.end(marker(8, producer_id=8), ABORT) == (False, None), "nothing of it is left"


def test_plain_batches_need_no_marker() -> None:
    found = cleaning()
    assert not found.is_aborted(data(1, transactional=False))
    assert found.end(marker(2), COMMIT) == (False, None)
