"""StreamsGroupHeartbeat and StreamsGroupDescribe, frame by frame: see `make compatibility` for real applications."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.wire.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .raw import RawClient
from .raw_members import find_coordinator
from .waiting import wait_until

MISSING_INTERNAL_TOPICS: Final = 3


def _part(subtopology_id: str, **values: Any) -> Subtopology:
    given: dict[str, Any] = {
        "source_topics": (),
        "source_topic_regex": (),
        "state_changelog_topics": (),
        "repartition_sink_topics": (),
        "repartition_source_topics": (),
        "copartition_groups": (),
    }
    return Subtopology(subtopology_id=subtopology_id, **{**given, **values})


def _topology(app: str, source: str, **configs: str) -> Topology:
    def internal(name: str) -> TopicInfo:
        entries = [KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
        return TopicInfo(name=f"{app}-{name}", partitions=0, replication_factor=-1, topic_configs=entries)

    return Topology(
        epoch=0,
        subtopologies=(
            _part("0", source_topics=(source,), repartition_sink_topics=(f"{app}-r",)),
            _part("1", repartition_source_topics=(internal("r"),), state_changelog_topics=(internal("c"),)),
        ),
    )


def _heartbeat(raw: RawClient, app: str, member_id: str, epoch: int, **values: Any) -> StreamsGroupHeartbeatResponse:
    request = StreamsGroupHeartbeatRequest(
        group_id=app, member_id=member_id, member_epoch=epoch, endpoint_information_epoch=0, **values
    )
    return raw.ask(request, 1)


def _join(raw: RawClient, app: str, member_id: str, topology: Topology) -> StreamsGroupHeartbeatResponse:
    return _heartbeat(
        raw,
        app,
        member_id,
        0,
        rebalance_timeout_ms=60_000,
        topology=topology,
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        process_id=f"process of {member_id}",
    )


def _until_assigned(raw: RawClient, app: str, member_id: str, epoch: int) -> StreamsGroupHeartbeatResponse:
    """The first answer that has tasks."""
    answers: list[StreamsGroupHeartbeatResponse] = []

    def has_tasks() -> bool:
        known = answers[-1].member_epoch if answers else epoch
        answers.append(_heartbeat(raw, app, member_id, known))
        assert answers[-1].error_code == 0, answers[-1].error_message
        return bool(answers[-1].active_tasks)

    wait_until(has_tasks, f"{app} was assigned no tasks")
    return answers[-1]


def _create(broker: BrokerProcess, topic: str, partitions: int) -> None:
    ConfluentDriver(broker.kafka).create_topic(topic, partitions=partitions)


@pytest.fixture(name="raw")
def _raw(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        yield client


def test_topics_are_created_and_tasks_assigned_and_the_group_is_shown(broker: BrokerProcess, raw: RawClient) -> None:
    _create(broker, "lines", 3)
    find_coordinator(raw, "app")
    answer = _join(raw, "app", "m", _topology("app", "lines", cleanup_policy="compact"))
    assert answer.error_code == 0, answer.error_message
    assert MISSING_INTERNAL_TOPICS in [status.status_code for status in answer.status or ()]
    assigned = _until_assigned(raw, "app", "m", answer.member_epoch)
    assert {entry.subtopology_id: list(entry.partitions) for entry in assigned.active_tasks or ()} == {
        "0": [0, 1, 2],
        "1": [0, 1, 2],
    }
    assert len(raw.describe("app-c").partitions) == 3
    listed = raw.ask(ListGroupsRequest(states_filter=(), types_filter=("streams",)), 5)
    assert [(group.group_id, group.group_type, group.group_state) for group in listed.groups] == [
        ("app", "streams", "Stable")
    ]
    asked = StreamsGroupDescribeRequest(
        group_ids=("app", "nothing", ""), include_authorized_operations=True, include_topology_description=True
    )
    nameless, app, nothing = sorted(raw.ask(asked, 1).groups, key=lambda group: group.group_id)
    assert (nameless.error_code, nothing.error_code) == (ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND)
    assert (app.group_state, app.topology_description_status, app.assignor_name) == ("Stable", 1, "sticky")
    assert app.authorized_operations > 0
    assert [member.member_id for member in app.members] == ["m"]


def test_tasks_that_the_topology_does_not_have_are_passed_over(broker: BrokerProcess, raw: RawClient) -> None:
    _create(broker, "owned", 1)
    find_coordinator(raw, "owning")
    epoch = _join(raw, "owning", "m", _topology("owning", "owned")).member_epoch
    epoch = _until_assigned(raw, "owning", "m", epoch).member_epoch
    tasks = [TaskIds(subtopology_id="0", partitions=(0,)), TaskIds(subtopology_id="nowhere", partitions=(7,))]
    answer = _heartbeat(raw, "owning", "m", epoch, active_tasks=tasks, standby_tasks=(), warmup_tasks=())
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def test_only_a_member_in_its_epoch_commits(broker: BrokerProcess, raw: RawClient) -> None:
    _create(broker, "counted", 1)
    find_coordinator(raw, "commits")
    epoch = _join(raw, "commits", "m", _topology("commits", "counted")).member_epoch
    epoch = _until_assigned(raw, "commits", "m", epoch).member_epoch

    def commit(member_id: str, epoch: int) -> int:
        place = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="counted", partitions=(place,))
        request = OffsetCommitRequest(
            group_id="commits", generation_id_or_member_epoch=epoch, member_id=member_id, topics=(topic,)
        )
        code: int = raw.ask(request, 9).topics[0].partitions[0].error_code
        return code

    assert commit("m", epoch) == ErrorCode.NONE
    assert commit("m", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("other", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_reason_why_a_topic_could_not_be_created_is_reported(broker: BrokerProcess, raw: RawClient) -> None:
    _create(broker, "refused", 1)
    find_coordinator(raw, "bad")
    epoch = _join(raw, "bad", "m", _topology("bad", "refused", retention_ms="soon")).member_epoch

    def says_why() -> bool:
        (status,) = [
            status
            for status in _heartbeat(raw, "bad", "m", epoch).status or ()
            if status.status_code == MISSING_INTERNAL_TOPICS
        ]
        return "Creation failed: bad-c (" in status.status_detail and "retention.ms" in status.status_detail

    wait_until(says_why, "the member gets the reason")


def test_a_name_is_that_of_one_kind_of_group(broker: BrokerProcess, raw: RawClient) -> None:
    _create(broker, "once", 1)
    find_coordinator(raw, "kinds")
    assert _join(raw, "kinds", "m", _topology("kinds", "once")).error_code == 0
    (deleted,) = raw.ask(DeleteGroupsRequest(groups_names=("kinds",)), 3).results
    assert (deleted.error_code, deleted.error_message) == (
        ErrorCode.NON_EMPTY_GROUP,
        "group 'kinds' has members; stop them first",
    )
    assert _heartbeat(raw, "kinds", "m", -1).error_code == 0
    (deleted,) = raw.ask(DeleteGroupsRequest(groups_names=("kinds",)), 3).results
    assert (deleted.error_code, deleted.error_message) == (ErrorCode.NONE, None)
    assert _heartbeat(raw, "kinds", "m", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
