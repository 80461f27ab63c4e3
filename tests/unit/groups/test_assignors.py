"""The two server-side assignors of consumer groups."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import run_steps
from penstock.groups.consumer import assignors
from penstock.groups.consumer.assignors import Assignments, Partitions, Subscriber
from tests.examples import examples

A, B, C = (letter.encode() * 16 for letter in "ABC")
Table = dict[bytes, range]


def assign_range(subscribers: Sequence[Subscriber], partitions: Partitions) -> Assignments:
    return run_steps(assignors.assign_range(subscribers, partitions))


def assign_uniform(subscribers: Sequence[Subscriber], partitions: Partitions) -> Assignments:
    return run_steps(assignors.assign_uniform(subscribers, partitions))


ASSIGNORS = {"range": assign_range, "uniform": assign_uniform}


def place(topic: bytes, *numbers: int) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic, number) for number in numbers)


def one(
    member_id: str, *topics: bytes, held: frozenset[TopicIdPartition] = frozenset(), instance: str | None = None
) -> Subscriber:
    return Subscriber(member_id=member_id, instance_id=instance, topics=frozenset(topics), held=held)


def holding(shares: Assignments, *topics: bytes) -> list[Subscriber]:
    """All members again, with what they were given."""
    return [one(member_id, *topics, held=share) for member_id, share in shares.items()]


def moved(before: Assignments, after: Assignments) -> int:
    """How many partitions have another owner, of those whose owner is still there."""
    return sum(len(share - after[member_id]) for member_id, share in before.items() if member_id in after)


# -- range


def test_range_gives_each_member_a_run_of_partitions() -> None:
    shares = assign_range([one("m2", A), one("m1", A), one("m3", A)], {A: range(7)})
    assert shares == {"m1": place(A, 0, 1, 2), "m2": place(A, 3, 4), "m3": place(A, 5, 6)}


def test_range_cuts_topics_of_one_size_alike() -> None:
    shares = assign_range([one("m1", A, B), one("m2", A, B)], {A: range(3), B: range(3)})
    assert shares == {"m1": place(A, 0, 1) | place(B, 0, 1), "m2": place(A, 2) | place(B, 2)}


def test_range_looks_only_at_the_readers_of_a_topic() -> None:
    shares = assign_range([one("m1", A), one("m2", A, B), one("m3", B)], {A: range(2), B: range(4)})
    assert shares == {"m1": place(A, 0), "m2": place(A, 1) | place(B, 0, 1), "m3": place(B, 2, 3)}


def test_range_leaves_members_without_partitions_when_there_are_too_few() -> None:
    shares = assign_range([one("m1", A), one("m2", A), one("m3", A)], {A: range(2)})
    assert shares == {"m1": place(A, 0), "m2": place(A, 1), "m3": frozenset()}


def test_range_gives_static_members_the_same_again_with_other_member_ids() -> None:
    first = assign_range([one("m1", A, instance="i1"), one("m2", A, instance="i2"), one("a", A)], {A: range(6)})
    again = assign_range([one("z", A, instance="i1"), one("y", A, instance="i2"), one("b", A)], {A: range(6)})
    assert (first["m1"], first["m2"], first["a"]) == (again["z"], again["y"], again["b"])
    assert first["m1"] == place(A, 0, 1)  # static members come first


# -- uniform


def test_uniform_shares_equally() -> None:
    shares = assign_uniform([one("m1", A, B), one("m2", A, B), one("m3", A, B)], {A: range(4), B: range(4)})
    assert sorted(len(share) for share in shares.values()) == [2, 3, 3]


def test_uniform_spreads_a_topic_over_the_members() -> None:
    shares = assign_uniform([one("m1", A, B), one("m2", A, B)], {A: range(2), B: range(2)})
    assert all(len(share & place(A, 0, 1)) == 1 for share in shares.values())


def test_uniform_leaves_what_is_balanced_as_it_is() -> None:
    held = {"m1": place(A, 1, 3), "m2": place(A, 0, 2)}
    members = [one(member_id, A, held=share) for member_id, share in held.items()]
    assert assign_uniform(members, {A: range(4)}) == held


def test_uniform_moves_only_what_a_new_member_needs() -> None:
    before = {"m1": place(A, 0, 1, 2), "m2": place(A, 3, 4, 5)}
    after = assign_uniform([*holding(before, A), one("m3", A)], {A: range(6)})
    assert [len(after[member_id]) for member_id in ("m1", "m2", "m3")] == [2, 2, 2]
    assert moved(before, after) == 2


def test_uniform_gives_a_leavers_partitions_to_the_others_and_moves_no_other() -> None:
    before = {"m1": place(A, 0, 1), "m2": place(A, 2, 3), "m3": place(A, 4, 5)}
    after = assign_uniform([member for member in holding(before, A) if member.member_id != "m2"], {A: range(6)})
    assert moved(before, after) == 0
    assert after["m1"] >= before["m1"]
    assert after["m3"] >= before["m3"]


def test_uniform_deals_out_new_partitions_and_forgets_deleted_topics() -> None:
    before = {"m1": place(A, 0) | place(B, 0), "m2": place(A, 1) | place(B, 1)}
    after = assign_uniform(holding(before, A, B), {A: range(4)})
    assert sorted(len(share) for share in after.values()) == [2, 2]
    assert after["m1"] >= place(A, 0)
    assert after["m2"] >= place(A, 1)


def test_uniform_gives_a_partition_that_two_held_to_one_of_them() -> None:
    after = assign_uniform([one("m1", A, held=place(A, 0)), one("m2", A, held=place(A, 0))], {A: range(2)})
    assert after == {"m1": place(A, 0), "m2": place(A, 1)}


def test_uniform_levels_loads_where_subscriptions_differ() -> None:
    shares = assign_uniform([one("m1", A), one("m2", A, B), one("m3", B)], {A: range(6), B: range(6)})
    assert [len(shares[member_id]) for member_id in ("m1", "m2", "m3")] == [4, 4, 4]
    assert shares["m1"] <= place(A, *range(6))
    assert shares["m3"] <= place(B, *range(6))


def test_uniform_takes_from_the_member_with_most_where_subscriptions_differ() -> None:
    before = {"m1": place(A, *range(6)), "m2": place(B, 0)}
    members = [one("m1", A, held=before["m1"]), one("m2", A, B, held=before["m2"])]
    after = assign_uniform(members, {A: range(6), B: range(1)})
    assert [len(after[member_id]) for member_id in ("m1", "m2")] == [4, 3]
    assert moved(before, after) == 2


def test_uniform_takes_away_what_a_member_no_longer_subscribes_to() -> None:
    members = [one("m1", A, held=place(A, 0) | place(B, 0, 1)), one("m2", A, B, held=place(A, 1))]
    after = assign_uniform(members, {A: range(2), B: range(2)})
    assert after["m1"] == place(A, 0, 1)
    assert after["m2"] == place(B, 0, 1)


def test_uniform_looks_at_one_topic_in_a_step_though_all_partitions_have_owners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = {b"%016d" % number: range(2) for number in range(40)}
    members = [one(f"m{number}", *list(table)[number % 5 :]) for number in range(30)]
    shares = assign_uniform(members, table)
    again = [one(each.member_id, *each.topics, held=shares[each.member_id]) for each in members]
    sizes: list[int] = []

    def heapify(heap: list[tuple[int, str]]) -> None:
        sizes.append(len(heap))
        heap.sort()

    monkeypatch.setattr(assignors, "heapify", heapify)
    worst = 0
    for _ in assignors.assign_uniform(again, table):
        worst = max(worst, sum(sizes))
        sizes.clear()
    assert 0 < worst <= 2 * len(members)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_without_members_or_topics_the_target_is_empty(name: str) -> None:
    assign = ASSIGNORS[name]
    assert assign([], {A: range(3)}) == {}
    assert assign([one("m1"), one("m2", A)], {}) == {"m1": frozenset(), "m2": frozenset()}


# -- properties

TOPICS = [bytes([number]) * 16 for number in range(5)]
tables = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12).map(range), max_size=5)
member_ids = st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, min_size=1, max_size=8)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[list[Subscriber], Table]:
    """Members with any subscriptions, or all with the same, and any current assignments."""
    table = draw(tables)
    every = [TopicIdPartition(topic, number) for topic in TOPICS for number in range(14)]
    common = draw(st.frozensets(st.sampled_from(TOPICS)))
    members = [
        Subscriber(
            member_id=member_id,
            instance_id=draw(st.none() | st.just(f"i-{member_id}")),
            topics=common if alike else draw(st.frozensets(st.sampled_from(TOPICS))),
            held=draw(st.frozensets(st.sampled_from(every), max_size=20)),
        )
        for member_id in draw(member_ids)
    ]
    return members, table


@pytest.mark.parametrize("name", ASSIGNORS)
@given(groups())
@examples(200)
def test_every_subscribed_partition_has_one_owner_that_subscribes_to_it(
    name: str, group: tuple[list[Subscriber], Table]
) -> None:
    members, table = group
    shares = ASSIGNORS[name](members, table)
    assert set(shares) == {member.member_id for member in members}
    subscribed = {topic for member in members for topic in member.topics if topic in table}
    given_out = Counter(entry for share in shares.values() for entry in share)
    assert given_out == Counter(TopicIdPartition(topic, number) for topic in subscribed for number in table[topic])
    for member in members:
        assert all(entry.topic_id in member.topics for entry in shares[member.member_id])


@pytest.mark.parametrize("name", ASSIGNORS)
@given(groups(), st.randoms(use_true_random=False))
@examples(100)
def test_the_order_in_which_members_are_listed_does_not_matter(
    name: str, group: tuple[list[Subscriber], Table], random: Random
) -> None:
    members, table = group
    shuffled = list(members)
    random.shuffle(shuffled)
    assert ASSIGNORS[name](shuffled, table) == ASSIGNORS[name](members, table)


@given(groups(alike=True))
@examples(200)
def test_uniform_sizes_differ_by_one_at_most_for_equal_subscriptions(group: tuple[list[Subscriber], Table]) -> None:
    sizes = [len(share) for share in assign_uniform(*group).values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups())
@examples(100)
def test_uniform_moves_nothing_when_nothing_has_changed(group: tuple[list[Subscriber], Table]) -> None:
    members, table = group
    first = assign_uniform(members, table)
    kept = [one(member.member_id, *member.topics, held=first[member.member_id]) for member in members]
    assert assign_uniform(kept, table) == first


@given(groups())
@examples(200)
def test_uniform_readers_of_a_topic_cannot_be_levelled_by_one_more_move(
    group: tuple[list[Subscriber], Table],
) -> None:
    members, table = group
    shares = assign_uniform(members, table)
    for topic in table:
        readers = [member.member_id for member in members if topic in member.topics]
        holders = [reader for reader in readers if any(entry.topic_id == topic for entry in shares[reader])]
        if holders:
            most = max(len(shares[holder]) for holder in holders)
            assert most - min(len(shares[reader]) for reader in readers) <= 1


@given(st.integers(1, 8), st.integers(0, 40))
@examples(100)
def test_uniform_moves_no_more_than_it_must_when_one_joins(count: int, partitions: int) -> None:
    members = [f"m{number}" for number in range(count)]
    before = assign_uniform([one(member_id, A) for member_id in members], {A: range(partitions)})
    after = assign_uniform([*holding(before, A), one("new", A)], {A: range(partitions)})
    assert moved(before, after) == len(after["new"]) == partitions // (count + 1)


@given(st.integers(2, 8), st.integers(0, 40), st.data())
@examples(100)
def test_uniform_moves_nothing_but_the_leavers_when_one_leaves(
    count: int, partitions: int, data: st.DataObject
) -> None:
    members = [f"m{number}" for number in range(count)]
    before = assign_uniform([one(member_id, A) for member_id in members], {A: range(partitions)})
    leaver = data.draw(st.sampled_from(members))
    stay = [member for member in holding(before, A) if member.member_id != leaver]
    assert moved(before, assign_uniform(stay, {A: range(partitions)})) == 0


@given(groups(alike=True))
@examples(200)
def test_uniform_takes_away_no_more_than_balance_asks_for(group: tuple[list[Subscriber], Table]) -> None:
    """The number of moves that any balanced target needs at least."""
    members, table = group
    taken: set[TopicIdPartition] = set()
    kept: list[frozenset[TopicIdPartition]] = []
    for member in sorted(members, key=lambda member: member.member_id):
        valid = {
            entry
            for entry in member.held
            if entry.topic_id in member.topics and entry.partition in table.get(entry.topic_id, ())
        }
        kept.append(frozenset(valid - taken))
        taken |= valid
    total = sum(len(table[topic]) for topic in members[0].topics if topic in table)
    size, larger = divmod(total, len(members))
    counts = sorted((len(share) for share in kept), reverse=True)
    must = sum(max(0, count - size - (index < larger)) for index, count in enumerate(counts))
    shares = assign_uniform(members, table)
    order = sorted(members, key=lambda member: member.member_id)
    lost = sum(len(held - shares[member.member_id]) for member, held in zip(order, kept, strict=True))
    assert lost == must


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 6))
@examples(100)
def test_range_gives_runs_that_follow_each_other(sizes: list[int], count: int) -> None:
    table = {bytes([number]) * 16: range(size) for number, size in enumerate(sizes)}
    members = [one(f"m{number}", *table) for number in range(count)]
    shares = assign_range(members, table)
    for topic, numbers in table.items():
        runs = [
            sorted(entry.partition for entry in shares[member.member_id] if entry.topic_id == topic)
            for member in members
        ]
        assert [number for run in runs for number in run] == list(numbers)
        assert all(len(first) - len(second) in (0, 1) for first, second in pairwise(runs))
