"""The whole state of a consumer group is in its records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.decision import StateRecord
from penstock.foundation.ids import TopicIdPartition
from penstock.groups import records
from penstock.groups.consumer.members import Member
from penstock.groups.consumer.records import ConsumerRecords
from penstock.groups.consumer.state import ConsumerState
from penstock.groups.modern.members import MemberState
from penstock.groups.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    CurrentTopicPartitions,
    MemberKey,
)
from penstock.wire.state import kind_of, read_value
from tests.examples import examples
from tests.simulation.group_machines import GROUP, apply

from .consumer_harness import REBALANCE_MS, SESSION_MS, ConsumerHarness

RECORDS = ConsumerRecords(GROUP)


def _busy() -> ConsumerHarness:
    """A group in the middle of everything: one revokes, one waits, one is away, one has an expression."""
    group = ConsumerHarness({"a": 6, "b": 2, "c": 1})
    group.join("m1", "a", rack_id="r1", server_assignor="uniform")
    group.join("s1", "a", instance_id="i1")
    group.join("m2", "a", "b")
    group.join("m3", subscribed_topic_regex="c|b")
    group.beat("m1", 1)
    group.beat("s1", 2, instance_id="i1")
    group.beat("s1", -2, instance_id="i1")
    return group


def _everything(group: ConsumerHarness) -> dict[str, object]:
    state = group.machine.group.state
    return {
        name: getattr(state, name)
        for name in (
            "epoch",
            "metadata_hash",
            "target_epoch",
            "members",
            "by_instance",
            "targets",
            "owners",
            "regexes",
            "is_dead",
        )
    }


@pytest.mark.parametrize("compacted", [False, True])
def test_a_group_that_is_read_back_is_the_same_group(compacted: bool) -> None:
    group = _busy()
    before, described = _everything(group), group.described
    states = {member.state for member in group.machine.group.state.members.values()}
    assert states >= {MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}
    group.machine.restart(group.now_ms, compacted=compacted)
    assert _everything(group) == before
    assert group.described == described


@pytest.mark.parametrize("compacted", [False, True])
def test_a_group_that_is_read_back_goes_on_as_if_nothing_had_been(compacted: bool) -> None:
    group, other = _busy(), _busy()
    other.machine.restart(other.now_ms, compacted=compacted)
    for world in (group, other):
        world.join("s2", "a", instance_id="i1")
        world.settle("m1", "m2", "m3", "s2")
    assert other.described == group.described
    assert other.machine.group.state_name == "Stable"


def test_members_that_are_read_back_have_a_whole_session_for_a_heartbeat() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    group.pass_time(SESSION_MS - 1)
    group.machine.restart(group.now_ms)
    assert group.pass_time(SESSION_MS - 1) == []
    assert group.pass_time(1) == ["m1"]


def test_members_that_are_read_back_have_their_whole_time_to_give_up_partitions() -> None:
    group = ConsumerHarness(group_consumer_session_timeout_ms=10 * REBALANCE_MS)
    group.join("m1", "a")
    group.join("m2", "a")
    group.beat("m1", 1)
    group.pass_time(REBALANCE_MS - 1)
    group.machine.restart(group.now_ms)
    assert group.pass_time(REBALANCE_MS - 1) == []
    assert group.pass_time(1) == ["m1"]


def test_a_member_that_is_away_and_read_back_has_a_session_and_nothing_to_give_up() -> None:
    group = _busy()
    group.machine.restart(group.now_ms)
    assert (GROUP, "session", "s1") in group.machine.timers
    assert (GROUP, "rebalance", "s1") not in group.machine.timers
    assert (GROUP, "rebalance", "m1") in group.machine.timers


def test_tombstones_leave_nothing_of_a_group() -> None:
    group = _busy()
    tombstones = group.machine.group.tombstones()
    live = {record.key for record in group.machine.log}
    assert {record.key for record in tombstones} >= {
        key for key in live if any(entry.key == key and entry.value is not None for entry in group.machine.log)
    }
    for record in tombstones:
        assert record.value is None
        group.machine.log.append(record)
        apply(group.machine.group, record)
    assert group.machine.group.state_name == "Dead"
    assert group.machine.group.is_empty
    group.machine.restart(group.now_ms, compacted=True)
    assert group.machine.log == []
    assert group.machine.group.state_name == "Empty"


def test_a_tombstone_for_what_is_not_there_does_no_harm() -> None:
    group = ConsumerHarness()
    for kind, (key_class, _) in RECORDS.kinds.items():
        fields = {"group": GROUP}
        fields |= {"member_id": "m9"} if key_class is MemberKey else {}
        fields |= {"regular_expression": "x"} if key_class is records.RegularExpressionKey else {}
        group.machine.group.apply_record(kind, key_class(**fields), None)
    assert group.machine.group.is_empty


def test_records_of_a_member_may_be_read_back_in_any_order() -> None:
    group = _busy()
    before = _everything(group)
    last = {record.key: record for record in group.machine.log}
    group.machine.log = list(reversed([record for record in last.values() if record.value is not None]))
    group.machine.restart(group.now_ms)
    assert _everything(group) == before


def test_a_record_from_before_kip_1251_counts_from_the_members_epoch() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7,
        previous_member_epoch=6,
        state=0,
        assigned_partitions=[CurrentTopicPartitions(topic_id=b"T" * 16, partitions=[0, 1])],
        partitions_pending_revocation=[
            CurrentTopicPartitions(topic_id=b"T" * 16, partitions=[2], assignment_epochs=[3, 4])  # of another length
        ],
    )
    member = Member(member_id="m").with_assignment_record(value)
    assert member.assigned == {TopicIdPartition(b"T" * 16, 0): 7, TopicIdPartition(b"T" * 16, 1): 7}
    assert member.revoking == {TopicIdPartition(b"T" * 16, 2): 7}


def test_a_state_that_this_version_does_not_know_is_read_as_such() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=0,
        state=9,
        assigned_partitions=(),
        partitions_pending_revocation=(),
    )
    assert Member(member_id="m").with_assignment_record(value).state is MemberState.UNKNOWN


epochs = st.integers(-2, 2**31 - 1)
held = st.dictionaries(
    st.builds(TopicIdPartition, st.sampled_from([b"T" * 16, b"O" * 16]), st.integers(0, 99)), st.integers(0, 99)
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


members = st.builds(
    Member,
    member_id=texts,
    instance_id=st.none() | texts,
    rack_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=st.integers(-1, 2**31 - 1),
    topic_names=st.frozensets(texts, max_size=4),
    topic_regex=texts,
    assignor=st.none() | texts,
    classic=st.none() | st.just(ClassicMemberMetadata(session_timeout_ms=5, supported_protocols=())),
    epoch=epochs,
    previous_epoch=epochs,
    state=st.sampled_from([state for state in MemberState if state is not MemberState.UNKNOWN]),
    assigned=held,
    revoking=held,
)


@given(members)
@examples(deadline=None)
def test_a_member_is_what_its_records_say(member: Member) -> None:
    read = Member(member_id=member.member_id)
    for change in (
        RECORDS.member_metadata(member),
        RECORDS.current_assignment(member),
    ):
        record = RECORDS.to_record(change)
        assert record.value is not None
        value = read_value(RECORDS.kinds[kind_of(record.key)][1], record.value)
        is_metadata = kind_of(record.key) == records.CONSUMER_GROUP_MEMBER_METADATA
        read = read.with_metadata_record(value) if is_metadata else read.with_assignment_record(value)
    assert read == member


@given(members, members)
@examples(deadline=None)
def test_a_member_is_read_back_as_it_was_written(known: Member, written: Member) -> None:
    """A change goes to the state as it was made, and after a restart as its record's bytes say."""
    known, written = known._replace(member_id="m"), written._replace(member_id="m")
    for change in (
        RECORDS.member_metadata(written),
        RECORDS.current_assignment(written),
        RECORDS.target("m", written.assigned),
    ):
        record = RECORDS.to_record(change)
        assert record.value is not None
        states = []
        for value in (change.value, read_value(RECORDS.kinds[change.kind][1], record.value)):
            state = ConsumerState()
            state.apply(*RECORDS.member_metadata(known))
            state.apply(*RECORDS.current_assignment(known))
            state.apply(change.kind, change.key, value)
            states.append((state.members, state.targets, state.owners, state.by_instance, state.subscribed()))
        assert states[0] == states[1]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | members), max_size=12), st.data())
@examples(deadline=None)
def test_the_cached_subscribed_topics_are_up_to_date(
    steps: list[tuple[str, Member | None]], data: st.DataObject
) -> None:
    """It is remembered, and replaced only by a change."""
    state = ConsumerState()
    for name, member in steps:
        if member is None:
            for change in RECORDS.member_tombstones([name]):
                state.apply(*change)
        else:
            state.apply(*RECORDS.member_metadata(member._replace(member_id=name)))
        if data.draw(st.booleans()):
            wanted: set[str] = set()
            assert state.subscribed() == wanted.union(*(one.topic_names for one in state.members.values()))
    assert len(state.members) <= 3


def test_the_same_state_is_written_in_the_same_bytes() -> None:
    forwards = {TopicIdPartition(b"T" * 16, number): 3 for number in range(9)}
    backwards = dict(reversed(forwards.items()))
    first, second = (
        RECORDS.to_record(RECORDS.current_assignment(Member(member_id="m", assigned=each)))
        for each in (forwards, backwards)
    )
    assert first == second
    assert isinstance(first, StateRecord)
