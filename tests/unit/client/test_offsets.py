import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.offsets import LogRange, Origin, Start, start_offsets
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import OffsetOutOfRange
from penstock.foundation.ids import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
SPANS = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: LogRange(pair[0], sum(pair)))


def test_each_end_is_the_partition_s_own() -> None:
    held = {P0: LogRange(3, 9), P1: LogRange(0, 0)}
    assert start_offsets(Start(Origin.EARLIEST), held, {}) == {P0: 3, P1: 0}
    assert start_offsets(Start(Origin.LATEST), held, {}) == {P0: 9, P1: 0}


def test_the_last_so_many_are_no_more_than_there_are() -> None:
    assert start_offsets(Start(Origin.BACK, 4), {P0: LogRange(3, 9), P1: LogRange(0, 2)}, {}) == {P0: 5, P1: 0}


def test_a_time_that_nothing_is_as_late_as_is_the_end() -> None:
    held = {P0: LogRange(3, 9), P1: LogRange(0, 2)}
    assert start_offsets(Start(Origin.TIME, 1), held, {P0: 5}) == {P0: 5, P1: 2}


def test_an_offset_that_no_partition_holds_is_refused() -> None:
    with pytest.raises(OffsetOutOfRange, match=r"offset 10 is not there; orders-0 holds 3 to 9") as caught:
        start_offsets(Start(Origin.OFFSET, 10), {P0: LogRange(3, 9)}, {})
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offset_is_no_trouble_where_there_are_no_partitions() -> None:
    assert start_offsets(Start(Origin.OFFSET, 10), {}, {}) == {}


@given(st.dictionaries(st.sampled_from([P0, P1]), SPANS, min_size=1), st.integers(0, 100))
def test_an_offset_is_taken_where_it_is_held_and_the_nearer_end_elsewhere(
    held: dict[TopicPartition, LogRange], offset: int
) -> None:
    if not any(span.start <= offset <= span.end for span in held.values()):
        with pytest.raises(OffsetOutOfRange):
            start_offsets(Start(Origin.OFFSET, offset), held, {})
        return
    for place, found in start_offsets(Start(Origin.OFFSET, offset), held, {}).items():
        span = held[place]
        assert span.start <= found <= span.end
        assert abs(found - offset) == min(abs(each - offset) for each in range(span.start, span.end + 1))


@given(st.dictionaries(st.sampled_from([P0, P1]), SPANS), st.sampled_from(Origin), st.integers(0, 100))
def test_wherever_one_begins_it_is_within_what_is_held(
    held: dict[TopicPartition, LogRange], origin: Origin, value: int
) -> None:
    if origin is Origin.OFFSET:
        return
    for place, found in start_offsets(Start(origin, value), held, {}).items():
        assert held[place].start <= found <= held[place].end
