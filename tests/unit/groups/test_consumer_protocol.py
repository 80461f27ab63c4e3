"""Subscriptions and assignments of the classic protocol, byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import MalformedRequest
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.classic.consumer_protocol import (
    partitions_in,
    read_assignment,
    read_subscription,
    write_assignment,
)
from penstock.wire.consumer_protocol import AssignedTopic, ConsumerProtocolSubscription

from .coordinator_harness import image_of, topic_of
from .migration_harness import assigned, assignment, subscription

ORDERS = topic_of("orders", 4)
IMAGE = image_of(ORDERS)
KAFKAS = bytes.fromhex(
    "0003"  # version
    "00000001 0006 6f7264657273"  # one topic
    "00000002 abcd"  # what an assignor wants to know
    "00000001 0006 6f7264657273 00000002 00000000 00000003"  # two partitions that it owns
    "00000007"  # since generation 7
    "0002 6575"  # in rack eu
)


def test_a_subscription_is_read_as_kafka_writes_it() -> None:
    assert read_subscription(KAFKAS) == ConsumerProtocolSubscription(
        topics=["orders"],
        user_data=b"\xab\xcd",
        owned_partitions=[AssignedTopic(topic="orders", partitions=[0, 3])],
        generation_id=7,
        rack_id="eu",
    )


def test_a_subscription_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    later = (9).to_bytes(2, "big") + KAFKAS[2:] + b"more"
    assert read_subscription(later) == read_subscription(KAFKAS)


@pytest.mark.parametrize("version", range(4))
def test_every_version_says_which_topics(version: int) -> None:
    said = read_subscription(subscription("a", "b", version=version, owned={"a": [1]}, generation=5, rack="r"))
    assert list(said.topics) == ["a", "b"]
    assert [list(entry.partitions) for entry in said.owned_partitions] == ([[1]] if version >= 1 else [])
    assert said.generation_id == (5 if version >= 2 else -1)
    assert said.rack_id == ("r" if version >= 3 else None)


@pytest.mark.parametrize("written", [b"", b"\0", b"\0\1", KAFKAS[:-3], b"\xff\xff" + KAFKAS[2:]])
def test_invalid_bytes_are_refused(written: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_subscription(written)


def test_an_assignment_is_written_as_kafka_writes_it() -> None:
    places = {TopicIdPartition(ORDERS.topic_id, number) for number in (3, 0)}
    written = write_assignment(places, IMAGE, subscription("orders", version=1))
    assert written == bytes.fromhex("0001 00000001 0006 6f7264657273 00000002 00000000 00000003 ffffffff")


@pytest.mark.parametrize(("said", "answered"), [(0, 0), (2, 2), (3, 3), (9, 3)])
def test_an_assignment_is_of_the_version_that_the_member_speaks(said: int, answered: int) -> None:
    metadata = said.to_bytes(2, "big") + KAFKAS[2:]
    assert write_assignment((), IMAGE, metadata)[:2] == answered.to_bytes(2, "big")


def test_no_bytes_are_no_partitions() -> None:
    assert assigned(b"") == {}


def test_topics_that_are_gone_are_left_out_on_both_ways() -> None:
    places = {TopicIdPartition(b"?" * 16, 0), TopicIdPartition(ORDERS.topic_id, 1)}
    assert assigned(write_assignment(places, IMAGE, KAFKAS)) == {"orders": [1]}
    topics = read_assignment(assignment({"orders": [2], "gone": [0]})).assigned_partitions
    assert partitions_in(topics, IMAGE) == {TopicIdPartition(ORDERS.topic_id, 2)}


@given(st.sets(st.integers(0, 3)), st.integers(0, 3))
def test_an_assignment_is_read_back_as_it_was_written(numbers: set[int], version: int) -> None:
    places = {TopicIdPartition(ORDERS.topic_id, number) for number in numbers}
    written = write_assignment(places, IMAGE, version.to_bytes(2, "big"))
    assert partitions_in(read_assignment(written).assigned_partitions, IMAGE) == places
