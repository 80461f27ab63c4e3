"""ConsumerGroupHeartbeat and ConsumerGroupDescribe over a real connection, byte for byte (KIP-848)."""

from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .raw import NAME, RawClient
from .waiting import wait_until

COORDINATOR_OF_GROUPS = 0


def _join(group_id: str, member_id: str, topic: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=5000,
        subscribed_topic_names=(topic,),
        topic_partitions=(),
        **fields,
    )


def _is_found(raw: RawClient, group_id: str) -> bool:
    request = FindCoordinatorRequest(key_type=COORDINATOR_OF_GROUPS, coordinator_keys=(group_id,))
    (found,) = raw.ask(request, 4).coordinators
    return found.error_code == ErrorCode.NONE


def _joined(raw: RawClient, group_id: str, topic: str, version: int = 1) -> Any:
    """A member of a new group, once its coordinator is there."""
    wait_until(lambda: _is_found(raw, group_id), "the coordinator is found")
    request = _join(group_id, "" if version == 0 else "m1", topic)
    wait_until(lambda: raw.ask(request, version).error_code == ErrorCode.NONE, "the coordinator has read its groups")
    return raw.ask(request, version)


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_and_leaves_in_every_version(
    group_raw: RawClient, group_broker: BrokerProcess, topic: str, version: int
) -> None:
    ConfluentDriver(group_broker.kafka).create_topic(topic, partitions=3)
    joined = _joined(group_raw, f"g-{topic}", topic, version)
    assert (joined.error_code, joined.error_message) == (0, None)
    assert joined.member_epoch > 0
    assert joined.member_id == "m1" or joined.member_id.startswith(f"{NAME}-")
    left = group_raw.ask(
        ConsumerGroupHeartbeatRequest(group_id=f"g-{topic}", member_id=joined.member_id, member_epoch=-1), version
    )
    assert (left.error_code, left.member_id, left.member_epoch) == (0, joined.member_id, -1)


def test_a_refusal_says_why(group_raw: RawClient, group_broker: BrokerProcess, topic: str) -> None:
    ConfluentDriver(group_broker.kafka).create_topic(topic)
    _joined(group_raw, f"g-{topic}", topic)
    for request, code in (
        (ConsumerGroupHeartbeatRequest(group_id=f"g-{topic}", member_id="m2", member_epoch=1), "UNKNOWN_MEMBER_ID"),
        (ConsumerGroupHeartbeatRequest(group_id=f"g-{topic}", member_id="m1", member_epoch=9), "FENCED_MEMBER_EPOCH"),
        (_join(f"g-{topic}", "m2", topic, server_assignor="mine"), "UNSUPPORTED_ASSIGNOR"),
        (_join(f"g-{topic}", "m2", topic, subscribed_topic_regex="(["), "INVALID_REGULAR_EXPRESSION"),
        (_join(f"g-{topic}", "", topic), "INVALID_REQUEST"),
    ):
        answer = group_raw.ask(request, 1)
        assert ErrorCode(answer.error_code).name == code
        assert answer.error_message


def test_groups_are_described_at_once_each_with_its_own_error(
    group_raw: RawClient, group_broker: BrokerProcess, topic: str
) -> None:
    ConfluentDriver(group_broker.kafka).create_topic(topic, partitions=2)
    for group_id in (f"g-{topic}", f"h-{topic}"):
        _joined(group_raw, group_id, topic)
    request = ConsumerGroupDescribeRequest(
        group_ids=(f"g-{topic}", "", f"missing-{topic}", f"h-{topic}"), include_authorized_operations=True
    )
    groups = {group.group_id: group for group in group_raw.ask(request, 1).groups}
    assert groups[""].error_code == ErrorCode.INVALID_GROUP_ID
    assert groups[f"missing-{topic}"].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    for group_id in (f"g-{topic}", f"h-{topic}"):
        group = groups[group_id]
        assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
        assert group.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
        (member,) = group.members
        assert (member.member_id, member.client_id, member.member_type) == ("m1", NAME, 1)
        (entry,) = member.assignment.topic_partitions
        assert (entry.topic_name, list(entry.partitions)) == (topic, [0, 1])


def test_authorized_operations_are_returned_only_on_request(
    group_raw: RawClient, group_broker: BrokerProcess, topic: str
) -> None:
    ConfluentDriver(group_broker.kafka).create_topic(topic)
    _joined(group_raw, f"g-{topic}", topic)
    request = ConsumerGroupDescribeRequest(group_ids=(f"g-{topic}",), include_authorized_operations=False)
    (group,) = group_raw.ask(request, 0).groups
    assert group.authorized_operations == -(2**31)
