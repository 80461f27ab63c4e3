import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.core.cluster_lookup import From, Topics, TopicSelection, start_of, start_offsets
from penstock.api.errors import InvalidArgument, SubscribeFailed
from penstock.client.offsets import LogRange, Origin, Start
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
SPANS = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: LogRange(pair[0], sum(pair)))


@pytest.mark.parametrize(
    ("from_", "expected"),
    [
        ("earliest", Start(Origin.EARLIEST)),
        ("latest", Start(Origin.LATEST)),
        (0, Start(Origin.OFFSET, 0)),
        (17, Start(Origin.OFFSET, 17)),
        (-5, Start(Origin.BACK, 5)),
        (datetime(2026, 1, 1, tzinfo=UTC), Start(Origin.TIME, 1_767_225_600_000)),
    ],
)
def test_places_to_begin_are_an_end_an_offset_or_a_time(from_: From, expected: Start) -> None:
    assert start_of(from_) == expected


@pytest.mark.parametrize("from_", ["start", "", None, 1.5, True, datetime(2026, 1, 1)])
def test_an_invalid_start_position_is_refused_with_the_valid_ones(from_: From) -> None:
    with pytest.raises(InvalidArgument, match=r"'earliest', 'latest', a datetime|tzinfo=UTC"):
        start_of(from_)


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
    with pytest.raises(SubscribeFailed, match=r"offset 10 is not there; orders-0 holds 3 to 9") as caught:
        start_offsets(Start(Origin.OFFSET, 10), {P0: LogRange(3, 9)}, {})
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offset_is_no_trouble_where_there_are_no_partitions() -> None:
    assert start_offsets(Start(Origin.OFFSET, 10), {}, {}) == {}


@given(st.dictionaries(st.sampled_from([P0, P1]), SPANS, min_size=1), st.integers(0, 100))
def test_an_offset_is_taken_where_it_is_held_and_the_nearer_end_elsewhere(
    held: dict[TopicPartition, LogRange], offset: int
) -> None:
    if not any(span.start <= offset <= span.end for span in held.values()):
        with pytest.raises(SubscribeFailed):
            start_offsets(Start(Origin.OFFSET, offset), held, {})
        return
    for place, found in start_offsets(Start(Origin.OFFSET, offset), held, {}).items():
        span = held[place]
        assert span.start <= found <= span.end
        assert abs(found - offset) == min(abs(each - offset) for each in range(span.start, span.end + 1))


@given(st.dictionaries(st.sampled_from([P0, P1]), SPANS), st.sampled_from(Origin), st.integers(0, 100))
def test_every_start_offset_is_within_the_log(
    held: dict[TopicPartition, LogRange], origin: Origin, value: int
) -> None:
    if origin is Origin.OFFSET:
        return
    for place, found in start_offsets(Start(origin, value), held, {}).items():
        assert held[place].start <= found <= held[place].end


def test_topics_are_a_name_several_names_or_a_pattern() -> None:
    assert TopicSelection("orders").names == ("orders",)
    assert TopicSelection(["a", "b", "a"]).names == ("a", "b")
    assert TopicSelection("^orders-.*").pattern is not None
    assert str(TopicSelection("orders")) == "'orders'"
    assert str(TopicSelection(re.compile("o.*"))) == "topics like 'o.*'"


def test_a_pattern_must_match_the_whole_name_and_finds_no_internal_topics() -> None:
    selection = TopicSelection(re.compile(r"orders-\d"))
    assert selection.matches("orders-1")
    assert not selection.matches("orders-12")
    assert not selection.matches("my-orders-1")
    assert not TopicSelection(re.compile(".*")).matches("__consumer_offsets")
    assert TopicSelection("orders").matches("orders")
    assert not TopicSelection("orders").matches("order")


@pytest.mark.parametrize("topics", ["", [], [""], ["a", 1], "^("])
def test_an_empty_topic_selection_is_refused(topics: Topics) -> None:
    with pytest.raises(InvalidArgument, match=r"names no topics|is not a regular expression"):
        TopicSelection(topics)
