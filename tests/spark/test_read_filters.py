"""Filters that Spark pushes down skip only what cannot match."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.foundation.ids import TopicPartition
from penstock.spark.filters import push_filters
from penstock.spark.read_plan import OffsetRange

NAME = TopicPartition("orders", 3)
OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)
COMPARED = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
NUMBERS = st.integers(0, 20)


def number_filters(column: tuple[str, ...]) -> st.SearchStrategy[Filter]:
    plain = st.builds(lambda kind, value: kind(column, value), st.sampled_from(COMPARED), NUMBERS)
    listed = st.builds(lambda values: In(column, tuple(values)), st.lists(NUMBERS, min_size=1, max_size=4))
    return plain | listed | (plain | listed).map(Not)


def passes(test: Filter, have: int) -> bool:
    """What Spark says of a row."""
    if isinstance(test, Not):
        return not passes(test.child, have)
    value: Any = test.value  # type: ignore[attr-defined]
    if isinstance(test, In):
        return have in value
    compare = {
        GreaterThan: have.__gt__,
        GreaterThanOrEqual: have.__ge__,
        LessThan: have.__lt__,
        LessThanOrEqual: have.__le__,
    }
    return compare.get(type(test), have.__eq__)(value)


@given(st.lists(number_filters(OFFSET), max_size=4))
def test_offsets_that_pass_are_read_and_others_only_where_spark_looks_again(filters: list[Filter]) -> None:
    pushed, residual = push_filters(filters)
    clipped = pushed.clip(OffsetRange(NAME, 2, 18))
    read = [offset for offset in range(clipped.start, clipped.end) if all(passes(test, offset) for test in residual)]
    assert read == [offset for offset in range(2, 18) if all(passes(test, offset) for test in filters)]


@given(st.lists(number_filters(PARTITION), max_size=4))
def test_a_partition_is_read_if_it_passes(filters: list[Filter]) -> None:
    pushed, residual = push_filters(filters)
    assert residual == []
    for number in range(20):
        assert pushed.matches(TopicPartition("t", number)) == all(passes(test, number) for test in filters)


def test_topics_are_chosen_by_name() -> None:
    pushed, residual = push_filters(
        [In(TOPIC, ("orders", "other")), StringStartsWith(TOPIC, "or"), Not(EqualTo(TOPIC, "oro"))]
    )
    assert residual == []
    assert [pushed.matches(TopicPartition(topic, 0)) for topic in ("orders", "other", "oro")] == [True, False, False]


@pytest.mark.parametrize(
    "left_to_spark",
    [
        EqualTo(("value",), b"x"),
        EqualTo(PARTITION, None),
        In(OFFSET, (1, None)),
        GreaterThan(TOPIC, "a"),
        IsNull(OFFSET),
        IsNotNull(("key",)),
        IsNotNull(TIME),
        EqualTo(("headers", "key"), "x"),
        LessThan(TIME, datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_unsupported_filters_are_left_to_spark(left_to_spark: Filter) -> None:
    pushed, residual = push_filters([left_to_spark])
    assert residual == [left_to_spark]
    assert pushed.clip(OffsetRange(NAME, 0, 9)) == OffsetRange(NAME, 0, 9) or isinstance(left_to_spark, In)
    assert pushed.matches(NAME)
    assert pushed.time_min_ms is None


def test_null_filters_of_non_null_columns_are_fully_applied() -> None:
    assert (
        push_filters([IsNotNull(OFFSET), IsNotNull(PARTITION), IsNotNull(TOPIC), IsNotNull(("timestampType",))])[1]
        == []
    )


def test_a_time_moves_the_start_and_spark_looks_again() -> None:
    time = datetime(2026, 1, 1, 12, tzinfo=UTC)
    filters = [GreaterThanOrEqual(TIME, time), GreaterThan(TIME, time - timedelta(days=1)), IsNotNull(TIME)]
    pushed, residual = push_filters(filters)
    assert residual == filters
    assert pushed.time_min_ms == int(time.timestamp() * 1000)


def test_a_time_between_two_milliseconds_is_rounded_down() -> None:
    pushed, _ = push_filters([GreaterThan(TIME, datetime(1970, 1, 1, 0, 0, 1, 1999, tzinfo=UTC))])
    assert pushed.time_min_ms == 1001


def test_a_time_before_all_times_narrows_nothing() -> None:
    pushed, _ = push_filters([GreaterThan(TIME, datetime(1960, 1, 1, tzinfo=UTC))])
    assert pushed.time_min_ms is None
