"""Offsets: which clients may commit and fetch them, and how transactions change them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.groups.commands import TopicsChanged
from penstock.groups.offsets.committed import Committed
from penstock.groups.records import OffsetCommitKey, OffsetCommitValue
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.wire.state import read_key, read_value

from .coordinator_harness import (
    GROUP,
    ORDERS,
    PRICES,
    Membership,
    World,
    codes_of,
    commit_of,
    image_of,
    join_of,
    leave_of,
    subscription,
    sync_of,
    topic_of,
    txn_commit_of,
)

OK = ErrorCode.NONE


def _commit(world: World, *args: object, version: int = 9, **wanted: object) -> list[ErrorCode]:
    return codes_of(world.call(commit_of(*args, **wanted), version))  # type: ignore[arg-type]


def _txn_commit(world: World, *args: object, **wanted: object) -> list[ErrorCode]:
    return codes_of(world.call(txn_commit_of(*args, **wanted)))  # type: ignore[arg-type]


# -- which clients may commit


def test_a_member_commits_where_it_is() -> None:
    world = World()
    (membership,) = world.stable("a")
    assert _commit(world, {0: 5, 1: 7}, membership) == [OK, OK]
    assert world.fetched(0, 1, 2) == [5, 7, -1]


def test_a_commit_is_there_after_a_restart_with_all_that_came_with_it() -> None:
    world = World()
    assert _commit(world, {0: 5}, metadata="half way") == [OK]
    world.restart()
    found = world.machine.offsets.get(GROUP, "orders", 0)
    assert found == Committed(
        offset=5,
        leader_epoch=7,
        metadata="half way",
        committed_ms=world.now_ms,
        topic_id=ORDERS.topic_id,
        sequence=1,
    )


def test_any_client_may_commit_for_an_empty_group() -> None:
    world = World()
    assert _commit(world, {0: 5}) == [OK]
    assert world.state == "Empty"
    (membership,) = world.stable("a")
    world.call(leave_of(membership.member_id))
    assert _commit(world, {0: 6}) == [OK]
    assert world.fetched(0) == [6]


def test_standalone_consumers_may_commit_for_the_empty_group_id() -> None:
    world = World()
    assert _commit(world, {0: 5}, group_id="") == [OK]
    request = OffsetFetchRequest(group_id="", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])])
    assert world.call(request, 5).topics[0].partitions[0].committed_offset == 5


def test_only_members_commit_for_a_group_that_has_some() -> None:
    world = World()
    world.stable("a")
    assert _commit(world, {0: 5}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert _commit(world, {0: 5}, Membership("unknown", 1, False)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.fetched(0) == [-1]


def test_a_member_of_another_generation_may_not_commit() -> None:
    world = World()
    (membership,) = world.stable("a")
    for generation in (0, 2, -1):
        wrong = Membership(membership.member_id, generation, True)
        assert _commit(world, {0: 5}, wrong) == [ErrorCode.ILLEGAL_GENERATION]


def test_members_may_commit_until_they_have_joined_again() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    world.submit(join_of(leader.member_id))
    assert _commit(world, {0: 5}, follower) == [OK]
    world.submit(join_of(follower.member_id))
    assert world.state == "CompletingRebalance"
    assert _commit(world, {0: 6}, follower) == [ErrorCode.ILLEGAL_GENERATION]
    newer = Membership(follower.member_id, 2, False)
    assert _commit(world, {0: 6}, newer) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_no_member_commits_in_a_generation_without_a_sync() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    world.submit(join_of(leader.member_id))
    world.submit(join_of(follower.member_id))
    world.submit(join_of(), 3)
    assert world.state == "PreparingRebalance"
    joined = Membership(follower.member_id, 2, False)
    assert _commit(world, {0: 6}, joined) == [ErrorCode.REBALANCE_IN_PROGRESS]
    world.restart()
    assert _commit(world, {0: 5}, follower) == [OK], "the first generation holds again"


def test_a_member_that_is_gone_may_not_commit() -> None:
    world = World()
    _, follower = world.stable("a", "b")
    world.call(leave_of(follower.member_id))
    assert _commit(world, {0: 5}, follower) == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_is_not_there_may_not_commit(version: int, code: ErrorCode) -> None:
    world = World()
    assert _commit(world, {0: 5}, Membership("unknown", 1, False), version=version) == [code]
    assert not world.machine.groups


# -- what may be committed


def test_a_commit_to_what_is_not_there_is_refused_for_that_partition_alone() -> None:
    world = World()
    assert _commit(world, {0: 5, 3: 5}) == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert _commit(world, {0: 5}, topic="nothing") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.fetched(0, 3) == [5, -1]


def test_a_commit_to_missing_topics_does_not_check_the_member() -> None:
    world = World()
    world.stable("a")
    assert _commit(world, {0: 5}, topic="nothing") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_the_text_with_an_offset_has_a_limit() -> None:
    world = World(metadata_bytes_max=4)
    assert _commit(world, {0: 5}, metadata="four") == [OK]
    assert _commit(world, {1: 5}, metadata="fiver") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert _txn_commit(world, {1: 5}, metadata="fiver") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.fetched(0, 1) == [5, -1]


def test_no_text_is_an_empty_text() -> None:
    world = World()
    assert _commit(world, {0: 5}, metadata=None) == [OK]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    assert world.call(request, 9).groups[0].topics[0].partitions[0].metadata == ""


def test_a_commit_that_cannot_be_persisted_has_not_happened() -> None:
    world = World()
    world.can_persist = False
    assert world.refusal(commit_of({0: 5}), 9) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.fetched(0) == [-1]
    assert not world.machine.groups


# -- topics by id


def test_from_version_10_on_topics_go_by_their_ids() -> None:
    world = World()
    response = world.call(commit_of({0: 5}, topic="", topic_id=ORDERS.topic_id))
    assert response.topics[0].topic_id == ORDERS.topic_id
    assert codes_of(response) == [OK]
    unknown = world.call(commit_of({0: 5}, topic="", topic_id=b"x" * 16))
    assert codes_of(unknown) == [ErrorCode.UNKNOWN_TOPIC_ID]
    wanted = [
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        for topic_id in (ORDERS.topic_id, b"x" * 16)
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=wanted)])
    known, missing = world.call(request).groups[0].topics
    assert (known.topic_id, known.partitions[0].committed_offset) == (ORDERS.topic_id, 5)
    assert (missing.topic_id, missing.partitions[0].error_code) == (b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID)


def test_an_offset_in_a_topic_that_had_the_name_before_does_not_count() -> None:
    world = World()
    _commit(world, {0: 5})
    again = topic_of("orders", topic_id=b"another".ljust(16))
    world.machine.image = image_of(again, PRICES)
    assert world.fetched(0) == [-1]
    _commit(world, {0: 1})
    assert world.fetched(0) == [1]


def test_all_offsets_by_id_are_those_of_topics_that_have_one() -> None:
    world = World()
    _commit(world, {0: 5})
    _commit(world, {1: 6}, topic="prices")
    world.machine.image = image_of(PRICES)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    (topic,) = world.call(request).groups[0].topics
    assert (topic.topic_id, topic.partitions[0].committed_offset) == (PRICES.topic_id, 6)
    assert {topic.name for topic in world.call(request, 9).groups[0].topics} == {"orders", "prices"}


# -- fetching


def test_all_offsets_of_a_group_are_returned_if_no_topics_are_named() -> None:
    world = World()
    _commit(world, {0: 5, 2: 6})
    _commit(world, {1: 7}, topic="prices")
    answer = world.call(OffsetFetchRequest(group_id=GROUP, topics=None), 7)
    found = {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }
    assert found == {("orders", 0): 5, ("orders", 2): 6, ("prices", 1): 7}
    assert answer.error_code == OK


def test_several_groups_are_returned_in_one_response() -> None:
    world = World()
    _commit(world, {0: 5})
    _commit(world, {0: 9}, group_id="others")
    wanted = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=wanted) for name in (GROUP, "others", "missing")]
    answer = world.call(OffsetFetchRequest(groups=groups), 8)
    assert [group.group_id for group in answer.groups] == [GROUP, "others", "missing"]
    assert [group.topics[0].partitions[0].committed_offset for group in answer.groups] == [5, 9, -1]


def test_a_group_that_is_not_there_has_no_offsets() -> None:
    world = World()
    assert world.fetched(0, 1) == [-1, -1]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    (group,) = world.call(request, 9).groups
    assert (group.error_code, list(group.topics)) == (OK, [])


def test_members_of_classic_groups_may_send_their_member_id() -> None:
    world = World()
    world.stable("a")
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=GROUP, member_id="unknown", member_epoch=9, topics=None)]
    )
    assert world.call(request, 9).groups[0].error_code == OK


# -- transactions (KIP-447)


def test_offsets_in_a_transaction_count_once_it_has_committed() -> None:
    world = World()
    assert _txn_commit(world, {0: 5}) == [OK]
    assert world.fetched(0) == [-1]
    assert world.fetched(0, 1, require_stable=True) == [ErrorCode.UNSTABLE_OFFSET_COMMIT, -1]
    world.end_transaction(1, committed=True)
    assert world.fetched(0, require_stable=True) == [5]


def test_offsets_in_a_transaction_that_is_aborted_never_count() -> None:
    world = World()
    _commit(world, {0: 3})
    _txn_commit(world, {0: 5})
    world.end_transaction(1, committed=False)
    assert world.fetched(0, require_stable=True) == [3]


def test_a_group_of_an_aborted_transaction_alone_is_gone_with_it() -> None:
    world = World()
    _txn_commit(world, {0: 5})
    assert GROUP in world.machine.groups
    world.end_transaction(1, committed=False)
    assert not world.machine.groups


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_in_a_transaction_are_still_pending_after_a_restart(committed: bool) -> None:
    world = World()
    _txn_commit(world, {0: 5})
    world.restart()
    assert world.fetched(0, require_stable=True) == [ErrorCode.UNSTABLE_OFFSET_COMMIT]
    world.end_transaction(1, committed)
    world.restart()
    assert world.fetched(0) == [5 if committed else -1]


def test_all_offsets_are_unstable_where_a_transaction_is_about_to_change_them() -> None:
    world = World()
    _commit(world, {0: 3, 1: 4})
    _txn_commit(world, {0: 5, 2: 6})
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)], require_stable=True)
    (topic,) = world.call(request, 9).groups[0].topics
    assert {(p.partition_index, p.error_code, p.committed_offset) for p in topic.partitions} == {
        (0, ErrorCode.UNSTABLE_OFFSET_COMMIT, -1),
        (1, OK, 4),
    }


@pytest.mark.parametrize("restarted", [False, True])
def test_a_plain_commit_after_one_in_a_transaction_wins(restarted: bool) -> None:
    world = World()
    _txn_commit(world, {0: 5})
    _commit(world, {0: 3})
    world.end_transaction(1, committed=True)
    if restarted:
        world.restart()
    assert world.fetched(0) == [3]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_plain_commit_before_one_in_a_transaction_loses(restarted: bool) -> None:
    world = World()
    _commit(world, {0: 3})
    _txn_commit(world, {0: 5})
    world.end_transaction(1, committed=True)
    if restarted:
        world.restart()
    assert world.fetched(0) == [5]


def test_two_transactions_at_one_place_count_in_the_order_of_their_commits_to_the_log() -> None:
    world = World()
    _txn_commit(world, {0: 5}, producer_id=1)
    _txn_commit(world, {0: 8}, producer_id=2)
    world.end_transaction(2, committed=True)
    assert world.fetched(0, require_stable=True) == [ErrorCode.UNSTABLE_OFFSET_COMMIT]
    world.end_transaction(1, committed=True)
    assert world.fetched(0, require_stable=True) == [8]


def test_a_transaction_that_commits_twice_counts_with_the_last() -> None:
    world = World()
    _txn_commit(world, {0: 5})
    _txn_commit(world, {0: 6})
    world.end_transaction(1, committed=True)
    assert world.fetched(0) == [6]


def test_the_end_of_a_transaction_without_offsets_changes_nothing() -> None:
    world = World()
    _commit(world, {0: 3})
    world.end_transaction(9, committed=True)
    assert world.fetched(0) == [3]


def test_a_producer_commits_for_a_member_of_this_generation() -> None:
    world = World()
    (membership,) = world.stable("a")
    assert _txn_commit(world, {0: 5}, membership) == [OK]
    assert _txn_commit(world, {0: 5}, Membership(membership.member_id, 0, True)) == [ErrorCode.ILLEGAL_GENERATION]
    assert _txn_commit(world, {0: 5}, Membership("unknown", 1, True)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert _txn_commit(world, {0: 5}, membership, instance_id="red") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_producer_of_an_old_client_need_not_say_for_whom_it_commits() -> None:
    world = World()
    world.stable("a")
    assert _txn_commit(world, {0: 5}) == [OK]


def test_a_producer_may_commit_while_the_group_waits_for_its_leader() -> None:
    world = World()
    (membership,) = world.admit("a")
    assert world.state == "CompletingRebalance"
    assert _txn_commit(world, {0: 5}, membership) == [OK]


def test_a_producer_may_not_commit_for_a_member_of_a_group_that_is_not_there() -> None:
    world = World()
    assert _txn_commit(world, {0: 5}, Membership("unknown", 1, True)) == [ErrorCode.ILLEGAL_GENERATION]
    assert _txn_commit(world, {0: 5}, topic="nothing") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.refusal(txn_commit_of({0: 5}, group_id="")) == ErrorCode.INVALID_GROUP_ID


# -- deleting


def _delete(world: World, *numbers: int, topic: str = "orders", group_id: str = GROUP) -> object:
    partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
    request = OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    )
    return world.call(request)


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    world = World()
    _commit(world, {0: 5, 1: 6})
    assert codes_of(_delete(world, 0, 2)) == [OK, OK]
    assert world.fetched(0, 1) == [-1, 6]
    world.restart()
    assert world.fetched(0, 1) == [-1, 6]


def test_a_group_of_offsets_alone_is_gone_with_the_last() -> None:
    world = World()
    _commit(world, {0: 5})
    _delete(world, 0)
    assert not world.machine.groups


def test_deleting_reaches_what_is_pending_in_a_transaction() -> None:
    world = World()
    _txn_commit(world, {0: 5})
    assert codes_of(_delete(world, 0)) == [OK]
    world.end_transaction(1, committed=True)
    assert world.fetched(0) == [-1]


def test_offsets_in_topics_that_members_read_stay() -> None:
    world = World()
    (membership,) = world.stable("a", protocols=[("range", subscription("orders"))])
    _commit(world, {0: 5}, membership)
    _commit(world, {0: 6}, membership, topic="prices")
    assert codes_of(_delete(world, 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert codes_of(_delete(world, 0, topic="prices")) == [OK]
    assert world.fetched(0) == [5]


def test_unreadable_metadata_counts_as_a_subscription() -> None:
    world = World()
    (membership,) = world.stable("a", protocols=[("range", b"\0")])
    _commit(world, {0: 5}, membership)
    assert codes_of(_delete(world, 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_a_group_of_another_type_stay_while_it_has_members() -> None:
    world = World()
    (membership,) = world.admit("a", protocol_type="connect")
    world.call(sync_of(membership, {}, protocol_type="connect"))
    reply = world.replies[world.submit(OffsetDeleteRequest(group_id=GROUP, topics=()))]
    assert reply.code == ErrorCode.NON_EMPTY_GROUP


def test_there_is_nothing_to_delete_in_a_group_that_is_not_there() -> None:
    world = World()
    assert world.refusal(OffsetDeleteRequest(group_id=GROUP, topics=())) == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.refusal(OffsetDeleteRequest(group_id="", topics=())) == ErrorCode.INVALID_GROUP_ID


def test_there_is_nothing_to_delete_in_a_topic_that_is_not_there() -> None:
    world = World()
    _commit(world, {0: 5})
    assert codes_of(_delete(world, 0, topic="nothing")) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes_of(_delete(world, 9)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# -- topics that go


def test_offsets_of_a_topic_that_is_deleted_go_with_it() -> None:
    world = World()
    _commit(world, {0: 5})
    _commit(world, {0: 6}, topic="prices")
    _txn_commit(world, {1: 7})
    world.machine.image = image_of(PRICES)
    world.tell(TopicsChanged(deleted=frozenset({"orders"})))
    assert world.machine.offsets.partitions_of(GROUP) == [("prices", 0)]
    world.end_transaction(1, committed=True)
    assert world.machine.offsets.partitions_of(GROUP) == [("prices", 0)]


def test_offsets_in_a_new_topic_of_the_same_name_stay() -> None:
    world = World()
    _commit(world, {0: 5, 1: 6})
    again = topic_of("orders", topic_id=b"another".ljust(16))
    world.machine.image = image_of(again)
    _commit(world, {1: 2})
    world.tell(TopicsChanged(deleted=frozenset({"orders"})))
    assert world.machine.offsets.partitions_of(GROUP) == [("orders", 1)]


def test_if_offsets_of_a_deleted_topic_cannot_be_removed_it_is_tried_again() -> None:
    world = World()
    _commit(world, {0: 5})
    world.machine.image = image_of(PRICES)
    world.can_persist = False
    world.tell(TopicsChanged(deleted=frozenset({"orders"})))
    assert world.machine.offsets.partitions_of(GROUP) == [("orders", 0)]
    world.can_persist = True
    world.advance(1000)
    assert not world.machine.groups
    log = len(world.log)
    world.advance(5000)
    assert len(world.log) == log


def test_deleted_topics_without_offsets_change_nothing() -> None:
    world = World()
    decision = world.tell(TopicsChanged(deleted=frozenset({"nothing"})))
    assert not decision.persist


# -- records


def test_records_are_written_as_kafka_writes_them() -> None:
    world = World()
    _commit(world, {2: 5}, metadata="m")
    record, _ = world.log[0]  # type: ignore[misc]
    assert record.key == b"\0\1" + b"\0\7readers" + b"\0\6orders" + b"\0\0\0\2"
    assert record.value is not None
    assert record.value[:2] == b"\0\4"
    assert read_key(OffsetCommitKey, record.key).partition == 2
    assert read_value(OffsetCommitValue, record.value).topic_id == ORDERS.topic_id


@given(
    offset=st.integers(-1, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=50),
    committed_ms=st.integers(0, 2**60),
    topic_id=st.sampled_from([bytes(16), b"\1" * 16]),
)
def test_commits_are_read_back_as_they_were(
    offset: int, leader_epoch: int, metadata: str, committed_ms: int, topic_id: bytes
) -> None:
    committed = Committed(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        committed_ms=committed_ms,
        topic_id=topic_id,
        sequence=3,
    )
    record = committed.to_record("g", "t", 1)
    assert record.value is not None
    assert Committed.from_record(read_value(OffsetCommitValue, record.value), 3) == committed
