"""Members of a streams group join, get tasks, revoke them and leave."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.groups.errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    StaleMemberEpoch,
    StreamsInvalidTopology,
    UnknownMemberId,
)
from penstock.groups.streams.records import STREAMS_GROUP_TOPOLOGY
from penstock.groups.streams.requests import check_heartbeat
from penstock.groups.streams.topology import Status
from penstock.wire.messages.streams_group_heartbeat import (
    Endpoint,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TaskOffset,
)
from penstock.wire.state import kind_of
from tests.simulation.group_machines import StreamsMachine, topic_of

from .topologies import (
    COUNT,
    READY,
    REBALANCE_MS,
    beat,
    image,
    internal,
    joining,
    machine_of,
    owning,
    part,
    statuses_in,
    tasks_in,
    together,
    topology,
)

NOW_MS = 1_000_000


def answered(answer: object) -> StreamsGroupHeartbeatResponse:
    assert isinstance(answer, StreamsGroupHeartbeatResponse), repr(answer)
    return answer


def joined(machine: StreamsMachine, member_id: str, **values: object) -> StreamsGroupHeartbeatResponse:
    return answered(machine.ask(joining(member_id, **values), NOW_MS))


# -- joining


def test_the_first_member_gets_all_tasks() -> None:
    machine = machine_of(READY)
    answer = joined(machine, "a")
    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.error_code) == (1, 5000, 0)
    assert tasks_in(answer) == ({"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}, {})
    assert statuses_in(answer) == []
    assert machine.group.state_name == "Stable"


def test_a_second_member_waits_until_the_first_has_revoked_tasks() -> None:
    machine = machine_of(READY)
    first = joined(machine, "a")
    assert tasks_in(joined(machine, "b")) == ({}, {})
    response = answered(machine.ask(owning("a", 1, first), NOW_MS))
    kept, _ = tasks_in(response)
    assert sum(map(len, kept.values())) == 4
    assert response.member_epoch == 1, "it is in the new epoch only when it has given up tasks"
    assert answered(machine.ask(beat("b", 2), NOW_MS)).active_tasks is None
    assert answered(machine.ask(owning("a", 1, response), NOW_MS)).member_epoch == 2
    given, _ = tasks_in(answered(machine.ask(beat("b", 2), NOW_MS)))
    assert sum(map(len, given.values())) == 4
    assert machine.group.state_name == "Stable"


def test_a_new_group_waits_for_more_members() -> None:
    machine = machine_of(READY, group_streams_initial_rebalance_delay_ms=3000)
    first = joined(machine, "a")
    assert tasks_in(first) == ({}, {})
    assert statuses_in(first) == [Status.ASSIGNMENT_DELAYED]
    second = joined(machine, "b")
    machine.wake(NOW_MS + 3000)
    for name, answer in (("a", first), ("b", second)):
        given, _ = tasks_in(answered(machine.ask(beat(name, answer.member_epoch), NOW_MS + 3001)))
        assert sum(map(len, given.values())) == 4


def test_topics_that_are_missing_are_asked_for_and_tasks_are_assigned_once_they_are_there() -> None:
    machine = machine_of(image(words=2))
    answer = joined(machine, "a")
    assert statuses_in(answer) == [Status.MISSING_INTERNAL_TOPICS]
    assert answer.heartbeat_interval_ms == 200, "it is to ask again soon"
    assert {name: topic.partitions for name, topic in machine.wanted.items()} == {"app-r": 2, "app-c": 2}
    assert machine.group.state_name == "NotReady"
    machine.group.creation_error = "app-r (no room)"
    (status,) = answered(machine.ask(beat("a", 1), NOW_MS)).status or ()
    assert status.status_detail == "Internal topics are missing: app-c, app-r; Creation failed: app-r (no room)."
    machine.set_image(image(words=2, app_r=2, app_c=2), NOW_MS)
    response = answered(machine.ask(beat("a", 1), NOW_MS))
    assert tasks_in(response) == ({"0": [0, 1], "1": [0, 1]}, {})
    assert statuses_in(response) == []


def test_copies_of_state_are_kept_in_other_processes() -> None:
    machine = machine_of(READY, group_streams_num_standby_replicas=1)
    first = joined(machine, "a")
    assert tasks_in(first)[1] == {}, "there is no other process"
    joined(machine, "b")
    response = answered(machine.ask(owning("a", 1, first), NOW_MS))
    machine.ask(owning("a", 1, response), NOW_MS)
    active, standby = tasks_in(answered(machine.ask(beat("b", 2), NOW_MS)))
    assert set(standby) == {"1"}
    assert not set(standby["1"]) & set(active.get("1", ()))


def test_a_change_of_the_number_of_copies_is_a_new_assignment() -> None:
    machine = machine_of(READY)
    joined(machine, "a")
    epoch = machine.group.state.epoch
    machine.settings = machine_of(READY, group_streams_num_standby_replicas=2).settings
    assert answered(machine.ask(beat("a", 1), NOW_MS)).member_epoch == epoch + 1


def test_a_member_that_missed_a_response_gets_its_tasks_again() -> None:
    machine = machine_of(READY)
    joined(machine, "a")
    behind = beat("a", 0, rebalance_timeout_ms=REBALANCE_MS, topology=COUNT)
    assert tasks_in(answered(machine.ask(behind, NOW_MS)))[0]
    full = beat("a", 1, rebalance_timeout_ms=REBALANCE_MS, active_tasks=(), standby_tasks=(), warmup_tasks=())
    assert tasks_in(answered(machine.ask(full, NOW_MS)))[0]
    assert answered(machine.ask(beat("a", 1), NOW_MS)).active_tasks is None


def test_the_members_of_a_group_are_limited() -> None:
    machine = machine_of(READY, group_streams_max_size=1)
    joined(machine, "a")
    assert isinstance(machine.ask(joining("b"), NOW_MS), GroupMaxSizeReached)
    joined(machine, "a")


# -- the topology


def test_all_members_have_the_same_topology_until_the_group_is_empty() -> None:
    other = topology(part("0", source_topics=("words",)))
    machine = machine_of(READY)
    joined(machine, "a")
    refused = machine.ask(joining("b", other), NOW_MS)
    assert isinstance(refused, InvalidRequest)
    assert "stop all of them" in refused.message
    machine.ask(beat("a", -1), NOW_MS)
    assert tasks_in(joined(machine, "b", given=other)) == ({"0": [0, 1, 2, 3]}, {})


def test_a_member_with_an_older_topology_gets_stale_topology() -> None:
    machine = machine_of(READY)
    joined(machine, "a", given=topology(*COUNT.subtopologies, epoch=2))
    old = topology(part("0", source_topics=("words",)), epoch=1)
    assert statuses_in(joined(machine, "b", given=old)) == [Status.STALE_TOPOLOGY]


def test_the_same_topology_in_another_order_is_the_same() -> None:
    machine = machine_of(READY)
    joined(machine, "a")
    joined(machine, "b", given=topology(*reversed(COUNT.subtopologies)))


def test_a_topology_that_no_topics_fit_is_refused() -> None:
    machine = machine_of(READY)
    refused = machine.ask(joining("a", topology(part("0", repartition_source_topics=(internal("x"),)))), NOW_MS)
    assert isinstance(refused, StreamsInvalidTopology)
    assert machine.group.is_empty


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (topology(part("0", source_topics=("__consumer_offsets",))), "belongs to the broker"),
        (topology(part("0", source_topics=("a/b",))), "not allowed"),
        (topology(part("0")), "reads no topics"),
        (topology(part("0", source_topics=("a",)), part("0", source_topics=("b",))), "the same id"),
        (
            topology(part("0", source_topics=("a",), state_changelog_topics=(internal("c", 3),))),
            "must not set its number of partitions",
        ),
        (topology(part("0", repartition_source_topics=(internal("c", -3),))), "negative"),
        (topology(part("0", source_topics=("a",), copartition_groups=(together(1),))), "does not read"),
        (topology(part("0", source_topics=("a",), copartition_groups=(together(-1),))), "does not read"),
        (
            topology(part("0", source_topics=("a",), state_changelog_topics=(internal("__transaction_state"),))),
            "broker",
        ),
    ],
)
def test_a_topology_that_makes_no_sense_is_refused(given: object, text: str) -> None:
    with pytest.raises(StreamsInvalidTopology, match=text) as refused:
        check_heartbeat(joining("a", given))  # type: ignore[arg-type]
    assert refused.value.code == ErrorCode.STREAMS_INVALID_TOPOLOGY


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (joining(""), "member id is empty"),
        (joining("a", group_id=" "), "group id is empty"),
        (joining("a", process_id=""), "process id is empty"),
        (joining("a", topology=None), "set its topology"),
        (joining("a", rebalance_timeout_ms=-1), "rebalance timeout"),
        (joining("a", active_tasks=(TaskIds(subtopology_id="0", partitions=(1,)),)), "own no tasks"),
        (joining("a", instance_id="i"), "static membership"),
        (joining("a", topology(part("0", source_topic_regex=("a.*",)))), "regular expressions"),
        (beat("a", 3, topology=COUNT), "only when it joins"),
        (beat("a", -3), "expected -2 or more"),
        (beat("a", 3, active_tasks=()), "together or none"),
        (beat("a", 3, task_offsets=(TaskOffset(subtopology_id="0", partition=0, offset=1),)), "task offsets"),
        (beat("a", 3, warmup_tasks=(TaskIds(subtopology_id="0", partitions=(1,)),)), "warm-up"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(request_: object, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        check_heartbeat(request_)  # type: ignore[arg-type]


def test_a_group_whose_topology_could_not_be_read_gets_it_from_members_that_join_again() -> None:
    machine = machine_of(READY)
    joined(machine, "a")
    machine.log = [record for record in machine.log if kind_of(record.key) != STREAMS_GROUP_TOPOLOGY]
    machine.restart(NOW_MS)
    assert machine.group.state_name == "NotReady"
    assert not machine.group.subscribes_to("words")
    machine.set_image(image(words=4, app_r=4, app_c=4), NOW_MS)
    assert isinstance(machine.ask(beat("a", 1), NOW_MS), UnknownMemberId)
    joined(machine, "a")
    assert machine.group.state_name == "Stable"


# -- staying and leaving


def test_a_member_that_is_not_known_has_to_join() -> None:
    machine = machine_of(READY)
    joined(machine, "a")
    assert isinstance(machine.ask(beat("b", 1), NOW_MS), UnknownMemberId)
    assert isinstance(machine.ask(beat("b", -1), NOW_MS), UnknownMemberId)


@pytest.mark.parametrize("epoch", [1, 7])
def test_a_member_that_is_not_in_its_epoch_has_to_start_over(epoch: int) -> None:
    machine = machine_of(READY)
    joined(machine, "a")
    joined(machine, "b")
    machine.ask(beat("a", -1), NOW_MS)
    machine.ask(beat("b", 2), NOW_MS)
    machine.ask(beat("b", 3), NOW_MS)
    assert isinstance(machine.ask(beat("b", epoch), NOW_MS), FencedMemberEpoch)


def test_the_tasks_of_a_member_that_leaves_are_free() -> None:
    machine = machine_of(READY)
    joined(machine, "a")
    joined(machine, "b")
    machine.ask(beat("a", -1), NOW_MS)
    given, _ = tasks_in(answered(machine.ask(beat("b", 2), NOW_MS)))
    assert sum(map(len, given.values())) == 8


def test_a_member_that_is_silent_is_removed() -> None:
    machine = machine_of(READY)
    joined(machine, "a")
    assert machine.wake(NOW_MS + 44_999) == []
    assert machine.wake(NOW_MS + 45_000) == ["session"]
    assert machine.group.state_name == "Empty"


def test_a_member_that_does_not_give_up_its_tasks_is_removed() -> None:
    machine = machine_of(READY, group_streams_session_timeout_ms=600_000)
    first = joined(machine, "a")
    joined(machine, "b")
    machine.ask(owning("a", 1, first), NOW_MS)
    assert machine.wake(NOW_MS + REBALANCE_MS) == ["rebalance"]
    assert set(machine.group.state.members) == {"b"}


def test_one_member_can_have_the_whole_application_shut_down() -> None:
    machine = machine_of(READY)
    joined(machine, "a")
    answered(machine.ask(beat("a", 1, shutdown_application=True), NOW_MS))
    joined(machine, "b")
    (status,) = answered(machine.ask(beat("b", 2), NOW_MS)).status or ()
    assert status.status_code == Status.SHUTDOWN_APPLICATION
    assert "member a" in status.status_detail
    for name in "ab":
        machine.ask(beat(name, -1), NOW_MS)
    assert statuses_in(joined(machine, "c")) == [], "a group that was empty begins anew"


def test_members_get_the_endpoints_for_interactive_queries() -> None:
    machine = machine_of(READY)
    answer = joined(machine, "a", user_endpoint=Endpoint(host="here", port=8080))
    (entry,) = answer.partitions_by_user_endpoint or ()
    assert (entry.user_endpoint.host, entry.user_endpoint.port) == ("here", 8080)
    assert {topic.topic: list(topic.partitions) for topic in entry.active_partitions} == {
        "words": [0, 1, 2, 3],
        "app-r": [0, 1, 2, 3],
    }
    known = beat("a", 1, endpoint_information_epoch=answer.endpoint_information_epoch)
    assert answered(machine.ask(known, NOW_MS)).partitions_by_user_endpoint is None


# -- offsets


def test_a_member_may_commit_in_its_epoch_and_in_an_older_one_what_it_has_kept() -> None:
    machine = machine_of(READY)
    first = joined(machine, "a")
    words, others = topic_of("words", 4).topic_id, topic_of("app-r", 4).topic_id
    machine.group.check_commit("a", 1, [(words, 0)])
    joined(machine, "b")
    response = answered(machine.ask(owning("a", 1, first), NOW_MS))
    machine.ask(owning("a", 1, response), NOW_MS)
    kept, _ = tasks_in(response)
    gone = next(number for number in range(4) if number not in kept.get("0", ()))
    machine.group.check_commit("a", 1, [(words, number) for number in kept.get("0", ())])
    with pytest.raises(StaleMemberEpoch):
        machine.group.check_commit("a", 1, [(words, gone)])
    with pytest.raises(StaleMemberEpoch):
        machine.group.check_commit("a", 9, [(others, 0)])
    with pytest.raises(UnknownMemberId):
        machine.group.check_commit("missing", 1, [(words, 0)])
    with pytest.raises(UnknownMemberId):
        machine.group.check_commit("", -1, [(words, 0)])


def test_a_tool_may_commit_and_fetch_for_a_group_without_members() -> None:
    machine = machine_of(READY)
    joined(machine, "a")
    machine.group.check_fetch(None, -1)
    machine.group.check_fetch("a", 1)
    with pytest.raises(StaleMemberEpoch):
        machine.group.check_fetch("a", 2)
    machine.ask(beat("a", -1), NOW_MS)
    machine.group.check_commit("", -1, [(topic_of("words", 4).topic_id, 0)])


def test_offsets_of_topics_that_are_read_stay() -> None:
    machine = machine_of(READY)
    assert not machine.group.subscribes_to("words")
    joined(machine, "a")
    assert [name for name in ("words", "app-r", "app-c", "x") if machine.group.subscribes_to(name)] == [
        "words",
        "app-r",
    ]


# -- describing


def test_a_group_is_described_with_its_topology_and_its_members() -> None:
    machine = machine_of(READY)
    joined(machine, "a", rack_id="r", user_endpoint=Endpoint(host="here", port=1))
    described = machine.group.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)
    assert described.topology is not None
    assert [one.subtopology_id for one in described.topology.subtopologies or ()] == ["0", "1"]
    (member,) = described.members
    assert (member.rack_id, member.process_id, member.topology_epoch) == ("r", "process of a", 0)
    assert [entry.subtopology_id for entry in member.assignment.active_tasks] == ["0", "1"]
    assert member.assignment == member.target_assignment


def test_errors_have_codes_that_clients_know() -> None:
    codes: dict[type[PenstockError], ErrorCode] = {
        StreamsInvalidTopology: ErrorCode.STREAMS_INVALID_TOPOLOGY,
        FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
        UnknownMemberId: ErrorCode.UNKNOWN_MEMBER_ID,
        GroupMaxSizeReached: ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
    assert {kind: kind.code for kind in codes} == codes
