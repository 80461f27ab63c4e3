import re
from datetime import UTC, datetime

import pytest

from penstock.api.core.cluster_lookup import From, Topics, TopicSelection, start_of
from penstock.api.errors import InvalidArgument
from penstock.client.offsets import Origin, Start


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
