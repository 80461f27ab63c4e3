"""Kafka's simple assignor of share groups (KIP-932)."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import run_steps
from penstock.groups.consumer.assignors import Assignments, Partitions, Subscriber
from penstock.groups.share import assignor
from tests.examples import examples

T1, T2, T3 = (bytes([number]) * 16 for number in (1, 2, 3))


def assign_simple(subscribers: Sequence[Subscriber], partitions: Partitions) -> Assignments:
    return run_steps(assignor.assign_simple(subscribers, partitions))


def _members(count: int, *topics: bytes) -> list[Subscriber]:
    return [Subscriber(f"m{number:03}", None, frozenset(topics)) for number in range(count)]


def _again(subscribers: Sequence[Subscriber], shares: Assignments) -> list[Subscriber]:
    return [one._replace(held=shares[one.member_id]) for one in subscribers]


def _readers(shares: Assignments) -> Counter[TopicIdPartition]:
    return Counter(place for share in shares.values() for place in share)


def test_with_as_many_members_as_partitions_each_has_one() -> None:
    shares = assign_simple(_members(4, T1), {T1: range(4)})
    assert sorted(len(share) for share in shares.values()) == [1, 1, 1, 1]
    assert set(_readers(shares).values()) == {1}


def test_with_more_partitions_than_members_each_partition_has_one_member() -> None:
    shares = assign_simple(_members(3, T1, T2), {T1: range(4), T2: range(4)})
    assert sorted(len(share) for share in shares.values()) == [2, 3, 3]
    assert set(_readers(shares).values()) == {1}


@pytest.mark.parametrize(("members", "partitions", "sharing"), [(3, 2, 2), (4, 2, 2), (5, 2, 3), (200, 7, 29)])
def test_with_more_members_than_partitions_no_member_is_idle(members: int, partitions: int, sharing: int) -> None:
    shares = assign_simple(_members(members, T1), {T1: range(partitions)})
    assert set(_readers(shares).values()) == {sharing}
    loads = [len(share) for share in shares.values()]
    assert min(loads) >= 1
    assert max(loads) - min(loads) <= 1


def test_members_that_want_other_topics_get_only_those() -> None:
    subscribers = [
        Subscriber("m1", None, frozenset((T1,))),
        Subscriber("m2", None, frozenset((T2,))),
        Subscriber("m3", None, frozenset((T1, T2))),
    ]
    shares = assign_simple(subscribers, {T1: range(4), T2: range(4)})
    assert {place.topic_id for place in shares["m1"]} == {T1}
    assert {place.topic_id for place in shares["m2"]} == {T2}
    assert Counter(place.topic_id for place in shares["m3"]) == {T1: 2, T2: 2}


def test_a_leaving_member_moves_only_its_own_partitions() -> None:
    members = _members(4, T1)
    before = assign_simple(members, {T1: range(8)})
    after = assign_simple(_again(members[:3], before), {T1: range(8)})
    for one in members[:3]:
        assert before[one.member_id] <= after[one.member_id]


def test_a_deleted_topic_and_no_members_give_an_empty_target() -> None:
    assert assign_simple([], {T1: range(4)}) == {}
    assert assign_simple(_members(2, T3), {}) == {"m000": frozenset(), "m001": frozenset()}


topics = st.frozensets(st.sampled_from((T1, T2, T3)), max_size=3)


@given(
    wants=st.lists(topics, min_size=1, max_size=24),
    sizes=st.tuples(*(st.integers(0, 9) for _ in range(3))),
    uniform=st.booleans(),
    leave=st.integers(0, 5),
    grow=st.integers(0, 4),
)
@examples(300, deadline=None)
def test_every_partition_is_fetched_from_by_about_as_many_and_nothing_moves_for_nothing(
    wants: list[frozenset[bytes]], sizes: tuple[int, int, int], uniform: bool, leave: int, grow: int
) -> None:
    if uniform:
        wants = wants[:1] * len(wants)
    subscribers = [Subscriber(f"m{index:02}", None, wanted) for index, wanted in enumerate(wants)]
    partitions = dict(zip((T1, T2, T3), map(range, sizes), strict=True))
    shares = assign_simple(subscribers, partitions)
    _check(subscribers, partitions, shares, uniform)
    assert assign_simple(_again(subscribers, shares), partitions) == shares
    left = _again(subscribers, shares)[leave:]
    wider = {topic_id: range(len(numbers) + grow) for topic_id, numbers in partitions.items()}
    _check(left, wider, assign_simple(left, wider), uniform)


def _check(
    subscribers: Sequence[Subscriber], partitions: dict[bytes, range], shares: Assignments, uniform: bool
) -> None:
    readers = _readers(shares)
    wanted = {one.member_id: one.topics for one in subscribers}
    assert shares.keys() == wanted.keys()
    for member_id, share in shares.items():
        assert {place.topic_id for place in share} <= wanted[member_id]
    for topic_id, numbers in partitions.items():
        members = [one for one in subscribers if topic_id in one.topics]
        for number in numbers:
            count = readers[TopicIdPartition(topic_id, number)]
            assert (count > 0) == bool(members), "every subscribed partition is fetched from"
            assert count <= len(members)
    if uniform and subscribers:
        loads = [len(share) for share in shares.values()]
        assert max(loads) - min(loads) <= 1
        if readers:
            assert set(readers.values()) == {-(-len(subscribers) // len(readers))}
