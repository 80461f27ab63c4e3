"""Members of a share group join, get their partitions, and leave (KIP-932)."""

from dataclasses import replace

import pytest

from penstock.cluster.queues import Queue, QueueSettings
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import StateRecord
from penstock.groups.commands import AddCompanionLogs
from penstock.groups.modern.target_assignment import SHORT_INTERVAL_MS
from penstock.groups.share.records import ShareRecords
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.state import kind_of, read_key, read_value

from .coordinator_harness import GROUP, topic_of
from .share_harness import ShareHarness

SESSION_MS = 45_000


def test_a_first_member_gets_all_partitions_and_its_epoch() -> None:
    world = ShareHarness()
    answer = world.join("m1", "a", "b")
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (
        0,
        "m1",
        1,
        5000,
    )
    assert world.assignment(answer) == {"a": [0, 1, 2, 3], "b": [0, 1]}
    assert world.state == "Stable"


def test_a_second_member_takes_half_and_the_first_gets_a_new_assignment() -> None:
    world = ShareHarness({"a": 4})
    world.join("m1")
    second = world.join("m2")
    assert second.member_epoch == 2
    first = world.beat("m1", 1)
    assert first.member_epoch == 2
    assignment = (world.assignment(first) or {})["a"] + (world.assignment(second) or {})["a"]
    assert sorted(assignment) == [0, 1, 2, 3]
    assert len((world.assignment(first) or {})["a"]) == 2


def test_members_share_a_partition_when_there_are_more_of_them() -> None:
    world = ShareHarness({"a": 1})
    for name in ("m1", "m2", "m3"):
        world.join(name)
    world.come_to_rest()
    assert [world.assigned(name) for name in ("m1", "m2", "m3")] == [{"a": [0]}] * 3


def test_without_a_change_the_response_has_no_assignment() -> None:
    world = ShareHarness()
    world.join("m1")
    log = len(world.log)
    assert world.beat("m1", 1).assignment is None
    assert len(world.log) == log, "a heartbeat that changes nothing is not persisted"


def test_a_member_that_joins_again_gets_its_assignment() -> None:
    world = ShareHarness()
    world.join("m1")
    again = world.join("m1")
    assert (again.member_epoch, world.assignment(again)) == (1, {"a": [0, 1, 2, 3]})


def test_a_member_whose_answer_was_lost_may_speak_of_the_epoch_before() -> None:
    world = ShareHarness()
    world.join("m1")
    world.join("m2")
    world.beat("m1", 1)
    assert world.beat("m1", 1).member_epoch == 2
    assert world.refused("m1", 7) == ErrorCode.FENCED_MEMBER_EPOCH
    world.join("m3")
    world.beat("m1", 2)
    assert world.refused("m1", 1) == ErrorCode.FENCED_MEMBER_EPOCH


def test_another_subscription_is_another_assignment() -> None:
    world = ShareHarness()
    world.join("m1", "a")
    answer = world.beat("m1", 1, "b")
    assert (answer.member_epoch, world.assignment(answer)) == (2, {"b": [0, 1]})


def test_a_member_that_leaves_is_gone_and_the_others_take_over() -> None:
    world = ShareHarness()
    world.join("m1")
    world.join("m2")
    left = world.beat("m1", -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "m1", -1)
    assert world.assignment(world.beat("m2", 2)) == {"a": [0, 1, 2, 3]}
    assert world.refused("m1", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_members_are_all_gone_is_empty_and_stays() -> None:
    world = ShareHarness()
    world.join("m1")
    world.beat("m1", -1)
    assert world.state == "Empty"
    world.advance(30 * 86_400_000)
    assert world.state == "Empty"


def test_a_member_that_is_silent_for_too_long_is_removed() -> None:
    world = ShareHarness()
    world.join("m1")
    world.advance(SESSION_MS - 1)
    world.beat("m1", 1)
    world.advance(SESSION_MS - 1)
    assert "m1" in world.shared.state.members
    world.advance(1)
    assert world.state == "Empty"


def test_a_removal_that_could_not_be_persisted_is_tried_again() -> None:
    world = ShareHarness()
    world.join("m1")
    world.can_persist = False
    world.advance(SESSION_MS)
    assert "m1" in world.shared.state.members
    world.can_persist = True
    world.advance(1000)
    assert world.state == "Empty"


def test_a_group_has_session_timeouts_and_heartbeats_of_its_own() -> None:
    world = ShareHarness()
    own = {"share.session.timeout.ms": "50000", "share.heartbeat.interval.ms": "7000"}
    world.machine.image = world.image = replace(world.image, group_configs={GROUP: own})
    assert world.join("m1").heartbeat_interval_ms == 7000
    world.advance(SESSION_MS)
    assert world.state == "Stable"
    world.advance(5000)
    assert world.state == "Empty"


def test_a_full_group_accepts_only_its_members() -> None:
    world = ShareHarness(share_size_max=2)
    world.join("m1")
    world.join("m2")
    assert world.refused("m3", 0, "a") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join("m2").error_code == 0


@pytest.mark.parametrize(
    ("member_id", "epoch", "names", "fields"),
    [
        ("", 0, ("a",), {}),
        ("m1", 0, ("a",), {"group_id": ""}),
        ("m1", 0, ("a",), {"rack_id": " "}),
        ("m1", 0, (), {}),
        ("m1", 0, (), {"subscribed_topic_names": ()}),
        ("m1", -2, (), {}),
    ],
)
def test_invalid_requests_are_refused(
    member_id: str, epoch: int, names: tuple[str, ...], fields: dict[str, str]
) -> None:
    assert ShareHarness().refused(member_id, epoch, *names, **fields) == ErrorCode.INVALID_REQUEST


def test_a_stranger_and_a_group_that_is_not_there_are_refused() -> None:
    world = ShareHarness()
    assert world.refused("m1", 3) == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.refused("m1", -1) == ErrorCode.GROUP_ID_NOT_FOUND
    world.join("m1")
    assert world.refused("m2", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.refused("m2", -1) == ErrorCode.UNKNOWN_MEMBER_ID


# -- topics


def test_a_topic_without_companions_is_assigned_as_soon_as_it_has_them() -> None:
    world = ShareHarness()
    world.bare = {"a"}
    world.look()
    answer = world.join("m1", "a", "b")
    assert world.assignment(answer) == {"b": [0, 1]}
    assert answer.heartbeat_interval_ms == SHORT_INTERVAL_MS
    assert world.effects == [AddCompanionLogs(topic_ids=frozenset((topic_of("a").topic_id,)))]
    world.beat("m1", answer.member_epoch)
    assert len(world.effects) == 2, "it is asked for until it is there"
    world.bare = set()
    world.look()
    answer = world.beat("m1", answer.member_epoch)
    assert world.assignment(answer) == {"a": [0, 1, 2, 3], "b": [0, 1]}
    assert answer.heartbeat_interval_ms == 5000
    assert len(world.effects) == 2


def test_a_topic_that_comes_grows_and_goes_is_followed() -> None:
    world = ShareHarness({"a": 2})
    world.join("m1", "a", "late")
    assert world.assigned("m1") == {"a": [0, 1]}
    world.set_topics(late=1)
    assert world.assignment(world.beat("m1", 1)) == {"a": [0, 1], "late": [0]}
    world.set_topics(a=3)
    assert world.assignment(world.beat("m1", 2)) == {"a": [0, 1, 2], "late": [0]}
    world.set_topics(late=None)
    assert world.assignment(world.beat("m1", 3)) == {"a": [0, 1, 2]}
    known = world.shared.state.delivery_topics.topics
    assert [name for name, _ in known.values()] == ["a"], "with a topic its delivery state is gone"


def test_a_change_of_topics_that_is_none_for_the_group_changes_nothing() -> None:
    world = ShareHarness()
    world.join("m1", "a")
    log = len(world.log)
    world.set_topics(other=3)
    world.beat("m1", 1)
    assert len(world.log) == log


def test_a_change_of_topics_that_could_not_be_persisted_is_seen_again() -> None:
    world = ShareHarness({"a": 2})
    world.join("m1", "a")
    world.can_persist = False
    world.set_topics(a=3)
    world.can_persist = True
    assert world.assignment(world.beat("m1", 1)) == {"a": [0, 1, 2]}


def test_internal_topics_are_not_shared() -> None:
    world = ShareHarness({"__consumer_offsets": 4})
    assert world.assignment(world.join("m1", "__consumer_offsets")) == {}
    assert world.effects == []


def test_members_are_refused_for_a_fifo_queue_with_the_reason() -> None:
    world = ShareHarness({"jobs.fifo": 1, "a": 1})
    queue = Queue(name="jobs.fifo", topic_id=topic_of("jobs.fifo").topic_id, settings=QueueSettings(is_fifo=True))
    world.machine.image = world.image = replace(world.image, queues={"jobs.fifo": queue})
    answer = world.answer("m1", 0, "jobs.fifo", group_id="jobs.fifo")
    assert answer.code == ErrorCode.INVALID_REQUEST
    assert "FIFO queue" in answer.message
    # Another group reads the same messages on its own terms.
    assert world.beat("m1", 0, "jobs.fifo", group_id="others").error_code == 0


# -- what is kept


def _everything(world: ShareHarness) -> dict[str, object]:
    state = world.shared.state
    names = ("epoch", "metadata_hash", "target_epoch", "members", "targets", "delivery_topics", "is_dead")
    return {name: getattr(state, name) for name in names}


@pytest.mark.parametrize("compacted", [False, True])
def test_a_group_that_is_read_back_is_the_same_group(compacted: bool) -> None:
    world = ShareHarness()
    world.join("m1", "a", rack_id="r1")
    world.join("m2", "a", "b")
    world.join("m3", "b")
    world.beat("m3", -1)
    world.beat("m1", 1)
    before, described = _everything(world), world.shared.describe()
    if compacted:
        world.compact()
    else:
        world.log = [(StateRecord(key=record.key, value=record.value), -1) for record, _ in world.log]  # type: ignore[misc]
    world.restart()
    assert _everything(world) == before
    assert world.shared.describe() == described
    world.advance(SESSION_MS)
    assert world.state == "Empty", "those who are not heard of again are missed"


def test_records_are_of_kafkas_kinds_and_in_its_words() -> None:
    world = ShareHarness()
    world.join("m1", "b", rack_id="r1")
    found = {}
    for record, _ in world.log:  # type: ignore[misc]
        key, value = ShareRecords.kinds[kind_of(record.key)]
        found[kind_of(record.key)] = (read_key(key, record.key), read_value(value, record.value))
    assert sorted(found) == [10, 11, 12, 13, 14, 15]
    said = found[10][1]
    assert (said.rack_id, said.client_id, said.client_host, list(said.subscribed_topic_names)) == (
        "r1",
        "client",
        "10.0.0.1",
        ["b"],
    )
    (initialised,) = found[15][1].initialized_topics
    assert (initialised.topic_name, list(initialised.partitions)) == ("b", [0, 1])
    assert (found[14][0].group, found[14][0].member_id, found[14][1].member_epoch) == (GROUP, "m1", 1)


def test_a_group_is_described_with_its_members() -> None:
    world = ShareHarness({"b": 2})
    world.join("m2", "b")
    world.join("m1", "b", rack_id="r1")
    response = world.call(
        ShareGroupDescribeRequest(group_ids=(GROUP, "missing"), include_authorized_operations=False)
    )
    group, missing = response.groups
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Stable", 2, 2)
    assert group.assignor_name == "simple"
    first, second = group.members
    assert (first.member_id, first.rack_id, first.client_host) == ("m1", "r1", "10.0.0.1")
    assert (first.subscribed_topic_names, second.member_epoch) == (["b"], 1)
    assert [entry.topic_name for entry in first.assignment.topic_partitions] == ["b"]
    assert (missing.error_code, missing.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "")
