"""A repeated commit has the same result as the handler: records, state, timers, and refusals."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.decision import ClientRequest
from penstock.groups.offsets.repeated_commit import PARTITIONS_MAX, CommitValues, RepeatedCommit
from penstock.records.build import build_pairs
from penstock.records.layout import HEADER_BYTES
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.examples import examples

from .coordinator_harness import (
    GROUP,
    ORDERS,
    PRICES,
    SESSION_MS,
    Membership,
    World,
    image_of,
    join_of,
    leave_of,
    settings_of,
    topic_of,
)

Rows = list[tuple[str, int, str | None]]
"""Topic, partition and metadata, of what is committed."""
ROWS: Rows = [("orders", 0, ""), ("orders", 2, ""), ("prices", 1, "")]
VERSION = 9


def request_of(membership: Membership | None, rows: Rows, said: CommitValues) -> OffsetCommitRequest:
    """A commit, topic by topic, of these numbers."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, number, metadata), offset, epoch in zip(rows, *said, strict=True):
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=membership.generation if membership else -1,
        member_id=membership.member_id if membership else "",
        topics=[OffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()],
    )


def learn(
    world: World, membership: Membership | None, rows: Rows = ROWS, version: int = VERSION
) -> RepeatedCommit | None:
    """The cached commit after a commit by the handler."""
    request = request_of(membership, rows, ((0,) * len(rows), (0,) * len(rows)))
    world.call(request, version)
    command = ClientRequest(body=request, version=version, client_id="", client_host="")
    return RepeatedCommit.of(world.machine, command, world.now_ms)


def learnt(world: World, membership: Membership | None, rows: Rows = ROWS) -> RepeatedCommit:
    found = learn(world, membership, rows)
    assert found is not None
    return found


def commit(world: World, membership: Membership | None, rows: Rows, said: CommitValues) -> tuple[bytes, set[int]]:
    """The same by the handler: the records of its batch, and its error codes."""
    before = len(world.log)
    response = world.call(request_of(membership, rows, said), VERSION)
    records = [entry[0] for entry in world.log[before:] if isinstance(entry, tuple)]
    codes = {one.error_code for topic in response.topics for one in topic.partitions}
    if not records:
        return b"", codes
    return bytes(build_pairs([(one.key, one.value) for one in records], world.now_ms)[HEADER_BYTES:]), codes


texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
places = st.lists(st.tuples(st.sampled_from(["orders", "prices"]), st.integers(0, 2), texts), min_size=1, max_size=12)
numbers = st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))


@given(places, st.lists(numbers, min_size=12, max_size=12), st.integers(0, 5000), st.booleans())
@examples(deadline=None)
def test_it_persists_and_leaves_behind_what_the_general_way_does(
    rows: Rows, said: list[tuple[int, int]], later_ms: int, is_member: bool
) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    wanted: CommitValues = (
        tuple(offset for offset, _ in said[: len(rows)]),
        tuple(epoch for _, epoch in said[: len(rows)]),
    )
    worlds = [World(), World()]
    memberships: list[Membership | None] = [world.stable("m")[0] if is_member else None for world in worlds]
    recommit, other = (learnt(world, membership, rows) for world, membership in zip(worlds, memberships, strict=True))
    assert recommit.count == other.count == len(rows)
    repeated, general = worlds
    for world in worlds:
        world.advance(later_ms)
    body = recommit.decide(wanted, repeated.now_ms)
    assert body is not None
    assert repeated.machine.offsets.of_group(GROUP) == general.machine.offsets.of_group(GROUP), "not applied yet"
    recommit.apply(wanted, repeated.now_ms)
    assert (body, {0}) == commit(general, memberships[1], rows, wanted)
    assert repeated.machine.offsets.of_group(GROUP) == general.machine.offsets.of_group(GROUP)
    assert repeated.machine.wake_at_ms == general.machine.wake_at_ms
    assert repeated.state == general.state


def test_a_commit_renews_the_session() -> None:
    world = World()
    (membership,) = world.stable("m")
    recommit = learnt(world, membership)
    for number in range(5):
        world.advance(SESSION_MS - 1)
        assert recommit.decide(((number,) * 3, (0,) * 3), world.now_ms) is not None
    assert world.state == "Stable"
    world.advance(SESSION_MS)
    assert world.state == "Empty"


def test_a_commit_of_a_client_that_is_not_a_member_creates_a_group() -> None:
    world = World()
    recommit = learnt(world, None)
    world.machine.groups.clear()
    recommit.apply(((1, 2, 3), (4, 5, 6)), world.now_ms)
    assert world.state == "Empty"
    assert world.fetched(0, 2) == [1, 2]


@pytest.mark.parametrize(
    "rows",
    [
        [("orders", 0, ""), ("orders", 7, "")],
        [("nowhere", 0, "")],
        [("orders", 0, "x" * 5000)],
        [],
        [("orders", 0, "")] * (PARTITIONS_MAX + 1),
    ],
    ids=["no such partition", "no such topic", "long metadata", "nothing", "much"],
)
def test_unusual_commits_are_not_cached(rows: Rows) -> None:
    world = World()
    (membership,) = world.stable("m")
    assert learn(world, membership, rows) is None


def test_commits_with_a_retention_time_are_not_cached() -> None:
    world = World()
    request = OffsetCommitRequest(group_id=GROUP, member_id="", retention_time_ms=5000, topics=[])
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        retention_time_ms=5000,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )
    assert (
        RepeatedCommit.of(world.machine, ClientRequest(body=request, version=3, client_id="", client_host=""), 0)
        is None
    )


def test_a_commit_that_is_refused_is_not_remembered() -> None:
    world = World()
    (membership,) = world.stable("m")
    assert learn(world, Membership(membership.member_id, membership.generation + 1, True)) is None
    assert learn(world, Membership("unknown", membership.generation, True)) is None


def test_a_member_that_is_gone_commits_nothing() -> None:
    world = World()
    (membership,) = world.stable("m")
    recommit = learnt(world, membership)
    world.call(leave_of(membership.member_id), 5)
    assert recommit.decide(((1,) * 3, (0,) * 3), world.now_ms) is None


def test_a_generation_that_is_over_commits_nothing() -> None:
    world = World()
    (membership,) = world.stable("m")
    recommit = learnt(world, membership)
    ticket = world.submit(join_of(membership.member_id), 5)
    again = world.membership(ticket)
    assert again.generation > membership.generation
    assert recommit.decide(((1,) * 3, (0,) * 3), world.now_ms) is None
    world.settle([again])
    assert recommit.decide(((1,) * 3, (0,) * 3), world.now_ms) is None


def test_when_topics_or_settings_have_changed_the_handler_is_used() -> None:
    world = World()
    (membership,) = world.stable("m")
    recommit = learnt(world, membership)
    world.machine.image = image_of(topic_of("orders", topic_id=b"2" * 16), PRICES)
    assert recommit.decide(((1,) * 3, (0,) * 3), world.now_ms) is None
    world.machine.image = image_of(ORDERS, PRICES, topic_of("returns"))
    assert recommit.decide(((1,) * 3, (0,) * 3), world.now_ms) is not None, "what it commits to is what it was"
    world.machine.settings = settings_of()
    assert recommit.decide(((1,) * 3, (0,) * 3), world.now_ms) is None


@pytest.mark.parametrize("seed", range(30))
def test_it_is_refused_whenever_the_general_way_refuses(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    memberships = world.stable("a", "b")
    remembered = [(membership, learnt(world, membership)) for membership in memberships]
    agreed = 0
    for _ in range(40):
        what = rng.randrange(6)
        some = rng.choice(memberships)
        if what == 0:
            world.submit(join_of(some.member_id), 5)
        elif what == 1:
            world.submit(leave_of(some.member_id), 5)
        elif what == 2:
            world.advance(rng.randrange(2 * SESSION_MS))
        elif what == 3 and rng.random() < 0.3:
            memberships = world.stable("a", "b") if world.state == "Empty" else memberships
            remembered = [
                (membership, recommit)
                for membership in memberships
                if (recommit := learn(world, membership)) is not None
            ]
        for membership, recommit in remembered:
            said: CommitValues = (tuple(rng.randrange(100) for _ in ROWS), tuple(rng.randrange(9) for _ in ROWS))
            body = recommit.decide(said, world.now_ms)
            persisted, codes = commit(world, membership, ROWS, said)
            assert (body or b"", body is not None) == (persisted, codes == {0})
            agreed += 1
    assert agreed > 0
