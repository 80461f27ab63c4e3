"""The group coordinator as a whole: all kinds of groups, its log, its timers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NO_PRODUCER, StateRecord
from penstock.foundation.errors import MalformedRequest, PenstockError
from penstock.groups import records
from penstock.groups.classic.subscribed_topics import subscribed_topics
from penstock.groups.commands import TopicsChanged
from penstock.groups.consumer.group import ConsumerGroup
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.state import read_value, state_record
from tests.examples import examples

from .coordinator_harness import (
    GROUP,
    PRICES,
    Membership,
    World,
    codes_of,
    commit_of,
    heartbeat_of,
    image_of,
    join_of,
    leave_of,
    subscription,
    sync_of,
    topic_of,
    txn_commit_of,
)


def _beat(member_id: str = "m", epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat of a consumer group's member, by default of one that joins."""
    joining: dict[str, Any] = (
        {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
        if epoch == 0
        else {}
    )
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, **{**joining, **fields}
    )


def _seat(world: World, member_id: str = "m") -> Membership:
    answer = world.call(_beat(member_id))
    assert answer.error_code == ErrorCode.NONE
    return Membership(answer.member_id, answer.member_epoch, False)


# -- consumer groups


def test_a_consumer_group_comes_into_being_with_its_first_member() -> None:
    world = World()
    _seat(world)
    assert isinstance(world.machine.groups[GROUP], ConsumerGroup)
    world.restart()
    assert isinstance(world.machine.groups[GROUP], ConsumerGroup)
    assert world.call(_beat("m", 1)).error_code == ErrorCode.NONE


def test_a_consumer_group_that_cannot_be_persisted_is_not_there() -> None:
    world = World()
    world.can_persist = False
    assert world.refusal(_beat()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not world.machine.groups
    world.can_persist = True
    world.advance(50_000)
    assert _seat(world).generation == 1


def test_only_a_joining_member_creates_a_consumer_group() -> None:
    world = World()
    assert world.refusal(_beat("m", 3)) == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.refusal(_beat("m", -1)) == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_of_a_consumer_group_that_is_silent_is_removed_by_the_coordinators_timers() -> None:
    world = World()
    _seat(world)
    world.advance(world.settings.by_kind["consumer"].session_timeout_ms)
    assert world.machine.groups[GROUP].is_empty
    world.advance(world.settings.offsets_check_interval_ms)
    assert not world.machine.groups, "an empty group without offsets is removed"
    world.restart()
    assert not world.machine.groups


def test_a_member_speaks_one_protocol_at_a_time() -> None:
    world = World()
    _seat(world)
    assert world.refusal(heartbeat_of(Membership("m", 1, False))) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.refusal(sync_of(Membership("m", 1, False))) == ErrorCode.UNKNOWN_MEMBER_ID
    classic = World()
    (membership,) = classic.stable("a")
    assert classic.refusal(_beat(membership.member_id, membership.generation)) == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("restarted", [False, True])
def test_an_empty_classic_group_may_become_a_consumer_group_and_keeps_its_offsets(restarted: bool) -> None:
    world = World()
    (membership,) = world.stable("a")
    world.call(commit_of({0: 5}, membership), 9)
    world.call(leave_of(membership.member_id))
    _seat(world)
    if restarted:
        world.restart()
    assert isinstance(world.machine.groups[GROUP], ConsumerGroup)
    assert world.fetched(0) == [5]


@pytest.mark.parametrize("restarted", [False, True])
def test_an_empty_consumer_group_may_become_a_classic_group_and_keeps_its_offsets(restarted: bool) -> None:
    world = World()
    membership = _seat(world)
    world.call(commit_of({0: 5}, membership), 9)
    world.call(_beat("m", -1))
    assert world.machine.groups[GROUP].is_empty
    world.stable("a")
    if restarted:
        world.restart()
    assert world.state == "Stable"
    assert world.group.generation == 1
    assert world.fetched(0) == [5]


def test_a_change_of_kind_that_cannot_be_persisted_loses_nothing() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.call(commit_of({0: 5}, membership), 9)
    world.call(leave_of(membership.member_id))
    world.can_persist = False
    assert world.refusal(_beat()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group.generation == 2
    world.can_persist = True
    assert _seat(world).generation == 1
    world.call(_beat("m", -1))
    world.can_persist = False
    ticket = world.submit(join_of(), 3)
    world.can_persist = True
    world.advance(3000)
    assert world.membership(ticket).leads
    assert world.fetched(0) == [5]


def test_a_member_that_is_not_known_does_not_change_the_kind_of_a_group() -> None:
    world = World()
    _seat(world)
    world.call(_beat("m", -1))
    assert world.refusal(join_of("unknown")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert isinstance(world.machine.groups[GROUP], ConsumerGroup)


def test_members_of_a_consumer_group_commit_and_fetch_in_their_epochs() -> None:
    world = World()
    membership = _seat(world)
    stale, stranger = Membership("m", 7, False), Membership("x", 1, False)
    assert codes_of(world.call(commit_of({0: 5}, membership), 9)) == [ErrorCode.NONE]
    assert codes_of(world.call(commit_of({0: 5}, stale), 9)) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert codes_of(world.call(commit_of({0: 5}, stranger), 9)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert codes_of(world.call(commit_of({0: 5}, membership), 8)) == [ErrorCode.UNSUPPORTED_VERSION]
    assert codes_of(world.call(txn_commit_of({0: 6}, membership))) == [ErrorCode.NONE]
    assert codes_of(world.call(txn_commit_of({0: 6}, stale))) == [ErrorCode.ILLEGAL_GENERATION]
    assert codes_of(world.call(txn_commit_of({0: 6}, stranger))) == [ErrorCode.UNKNOWN_MEMBER_ID]
    for member_id, epoch, code in (("m", 1, 0), ("m", 7, ErrorCode.STALE_MEMBER_EPOCH), (None, -1, 0)):
        wanted = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None)
        assert world.call(OffsetFetchRequest(groups=[wanted]), 9).groups[0].error_code == code


def test_a_consumer_group_is_described_by_its_own_api_and_listed_with_the_others() -> None:
    world = World()
    _seat(world)
    known, unknown = world.call(
        ConsumerGroupDescribeRequest(group_ids=[GROUP, "x"], include_authorized_operations=False)
    ).groups
    assert (known.error_code, known.group_id, len(known.members)) == (ErrorCode.NONE, GROUP, 1)
    assert (unknown.error_code, unknown.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, "x")
    (classic,) = world.call(DescribeGroupsRequest(groups=[GROUP])).groups
    assert (classic.error_code, classic.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    (listed,) = world.call(ListGroupsRequest(types_filter=["consumer"])).groups
    assert (listed.group_id, listed.protocol_type, listed.group_type) == (GROUP, "consumer", "consumer")


def test_a_classic_group_is_not_described_as_a_consumer_group() -> None:
    world = World()
    world.stable("a")
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    (group,) = world.call(request).groups
    assert (group.error_code, group.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"group {GROUP!r} is not a consumer group",
    )


def test_a_consumer_group_is_deleted_when_it_is_empty() -> None:
    world = World()
    membership = _seat(world)
    world.call(commit_of({0: 5}, membership), 9)
    request = DeleteGroupsRequest(groups_names=[GROUP])
    assert world.call(request).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    world.call(_beat("m", -1))
    assert world.call(request).results[0].error_code == ErrorCode.NONE
    assert not world.machine.groups
    world.restart()
    assert not world.machine.groups


def test_consumer_groups_learn_of_topics() -> None:
    world = World()
    _seat(world)
    grown = topic_of("orders", 5)
    world.machine.image = image_of(grown, PRICES)
    decision = world.tell(TopicsChanged(deleted=frozenset()))
    assert decision.persist
    world.advance(2000)
    assert not world.tell(TopicsChanged(deleted=frozenset())).persist


def test_consumer_groups_learn_of_topics_even_if_that_could_not_be_persisted_at_first() -> None:
    world = World()
    _seat(world)
    world.machine.image = image_of(topic_of("orders", 5), PRICES)
    world.can_persist = False
    world.tell(TopicsChanged(deleted=frozenset()))
    log = len(world.log)
    world.can_persist = True
    world.advance(1000)
    assert len(world.log) > log


# -- the log


def test_a_classic_group_is_written_as_kafka_writes_it() -> None:
    world = World()
    world.stable("a", protocols=[("range", b"about a")])
    record, producer_id = world.log[-1]  # type: ignore[misc]
    assert producer_id == NO_PRODUCER
    assert record.key == b"\0\2" + b"\0\7readers"
    assert record.value is not None
    assert record.value[:2] == b"\0\3"
    value = read_value(records.GroupMetadataValue, record.value)
    assert (value.protocol_type, value.generation, value.protocol, value.leader) == ("consumer", 1, "range", "a-1")
    assert value.current_state_timestamp == world.now_ms
    (member,) = value.members
    assert (member.subscription, member.assignment, member.session_timeout) == (b"about a", b"a-1", 10_000)


def test_records_of_kinds_that_are_not_known_are_read_past() -> None:
    world = World()
    legacy = state_record(records.CONSUMER_GROUP_PARTITION_METADATA, records.GroupKey(group=GROUP), None)
    for record in (legacy, StateRecord(key=b"\0\x63what", value=b"\0\0x")):
        world.machine.apply(record, NO_PRODUCER)
    assert not world.machine.groups


def test_a_record_that_is_not_whole_is_an_error() -> None:
    with pytest.raises(MalformedRequest):
        World().machine.apply(StateRecord(key=b"\0", value=None), NO_PRODUCER)


def test_a_tombstone_of_a_group_that_is_not_there_changes_nothing() -> None:
    world = World()
    world.machine.apply(state_record(records.GROUP_METADATA, records.GroupKey(group=GROUP), None), NO_PRODUCER)
    world.machine.apply(
        state_record(records.CONSUMER_GROUP_METADATA, records.GroupKey(group=GROUP), None), NO_PRODUCER
    )
    assert not world.machine.groups


def test_timers_due_at_the_same_time_run_one_at_a_time() -> None:
    """The second removal must see the first: each is persisted before the next is decided."""
    world = World()
    for name in ("m", "n"):
        _seat(world, name)
    world.now_ms += world.settings.by_kind["consumer"].session_timeout_ms
    first = world.machine.wake(world.now_ms)
    assert first.persist
    assert world.machine.wake_at_ms is not None
    assert world.machine.wake_at_ms <= world.now_ms
    world.carry_out(first)
    world.advance(0)
    assert world.machine.groups[GROUP].is_empty


def test_timers_of_a_busy_group_do_not_pile_up() -> None:
    world = World()
    (membership,) = world.stable("a")
    for _ in range(1000):
        world.advance(10)
        world.call(heartbeat_of(membership))
    assert len(world.machine.timers._heap) < 100


# -- random sequences

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "again", "static", "sync", "beat", "leave", "commit", "txn", "end", "wait", "delete"]
        ),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=60,
)


def _step(world: World, what: str, number: int, flag: bool) -> None:
    """Something that a client might ask, rightly or not."""
    group = world.machine.groups.get(GROUP)
    ids = group.roster.ids if group is not None and not isinstance(group, ConsumerGroup) else []  # type: ignore[attr-defined]
    member_id = ids[number % len(ids)] if ids else "unknown"
    membership = Membership(member_id, world.group.generation if ids else 0, False)
    metadata = subscription("orders" if flag else "prices")
    match what:
        case "join":
            world.submit(join_of(protocols=[("range", metadata)]), 3)
        case "again":
            world.submit(join_of(member_id, protocols=[("range", metadata)]))
        case "static":
            world.submit(join_of(instance_id=f"i{number % 2}", protocols=[("range", metadata)]))
        case "sync":
            world.submit(sync_of(membership, dict.fromkeys(ids, bytes([number]))))
        case "beat":
            world.submit(heartbeat_of(membership))
        case "leave":
            world.submit(leave_of(member_id))
        case "commit":
            world.submit(commit_of({number % 3: number}, membership if flag else None), 9)
        case "txn":
            world.submit(txn_commit_of({number % 3: number}, producer_id=number % 2))
        case "end":
            world.end_transaction(number % 2, flag)
        case "wait":
            world.advance(number * 4000)
        case "delete":
            world.submit(DeleteGroupsRequest(groups_names=[GROUP]))


def _durable(world: World) -> object:
    """What a coordinator must remember."""
    group = world.machine.groups.get(GROUP)
    offsets = {
        (topic, number): (found.offset, found.topic_id)
        for topic, table in world.machine.offsets.of_group(GROUP).items()
        for number, found in table.items()
    }
    if group is None or not world.group.is_stored or world.state not in ("Stable", "Empty"):
        return offsets
    members = {(member.member_id, member.instance_id, member.assignment) for member in world.group.roster}
    return offsets, world.state, world.group.generation, world.group.leader, members


@given(STEPS)
@examples(200, deadline=None)
def test_a_coordinator_made_of_the_log_remembers_what_the_first_one_knew(steps: list[tuple[str, int, bool]]) -> None:
    world = World()
    for what, number, flag in steps:
        _step(world, what, number, flag)
    known = _durable(world)
    was_settled = isinstance(known, tuple)
    world.restart()
    again = _durable(world)
    if was_settled:
        assert again == known
    else:
        assert (again[0] if isinstance(again, tuple) else again) == known


@given(STEPS, st.integers(0, 2**60))
@examples(200, deadline=None)
def test_every_request_is_answered_and_no_timer_is_left(steps: list[tuple[str, int, bool]], failures: int) -> None:
    world = World()
    for at, (what, number, flag) in enumerate(steps):
        world.can_persist = not failures >> at & 1
        _step(world, what, number, flag)
    world.can_persist = True
    for producer_id in (0, 1):
        world.end_transaction(producer_id, committed=False)
    world.advance(10 * 60_000)
    assert set(range(1, world.tickets + 1)) == set(world.replies), "a request was never answered"
    world.advance(world.settings.offsets_retention_ms + 2 * world.settings.offsets_check_interval_ms)
    assert not world.machine.groups
    assert world.machine.wake_at_ms is not None
    assert world.machine.wake_at_ms > world.now_ms
    for reply in world.replies.values():
        assert not isinstance(reply, PenstockError) or reply.code != ErrorCode.UNKNOWN_SERVER_ERROR


@given(st.binary(max_size=40))
def test_any_bytes_as_subscription_are_decoded_or_ignored(metadata: bytes) -> None:
    topics = subscribed_topics([metadata])
    assert topics is None or all(isinstance(topic, str) for topic in topics)


def test_subscriptions_are_decoded_in_every_version() -> None:
    assert subscribed_topics([subscription("orders"), subscription("prices", rest=b"")]) == {"orders", "prices"}
    assert subscribed_topics([subscription("orders"), b"\0\1"]) is None
    assert subscribed_topics([]) == frozenset()
