"""Versions against Kafka 4.3.1's own message definitions, and the rules of the schema language."""

from typing import Final

import pytest

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    REQUESTS,
    RESPONSES,
    Array,
    Int32,
    String,
    field,
    fields_of,
    message_of,
    struct,
    version_range,
)

from .catalogue import MESSAGES, label

NEVER: Final = 32767

# Every API of Kafka 4.3.1: versions, and the first flexible one. A response has the versions of its request.
KAFKA: Final = {
    ApiKey.PRODUCE: ("3-13", 9),
    ApiKey.FETCH: ("4-18", 12),
    ApiKey.LIST_OFFSETS: ("1-11", 6),
    ApiKey.METADATA: ("0-13", 9),
    ApiKey.OFFSET_COMMIT: ("2-10", 8),
    ApiKey.OFFSET_FETCH: ("1-10", 6),
    ApiKey.FIND_COORDINATOR: ("0-6", 3),
    ApiKey.JOIN_GROUP: ("0-9", 6),
    ApiKey.HEARTBEAT: ("0-4", 4),
    ApiKey.LEAVE_GROUP: ("0-5", 4),
    ApiKey.SYNC_GROUP: ("0-5", 4),
    ApiKey.DESCRIBE_GROUPS: ("0-6", 5),
    ApiKey.LIST_GROUPS: ("0-5", 3),
    ApiKey.SASL_HANDSHAKE: ("0-1", NEVER),
    ApiKey.API_VERSIONS: ("0-5", 3),
    ApiKey.CREATE_TOPICS: ("2-7", 5),
    ApiKey.DELETE_TOPICS: ("1-6", 4),
    ApiKey.DELETE_RECORDS: ("0-2", 2),
    ApiKey.INIT_PRODUCER_ID: ("0-6", 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("2-4", 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("0-5", 3),
    ApiKey.ADD_OFFSETS_TO_TXN: ("0-4", 3),
    ApiKey.END_TXN: ("0-5", 3),
    ApiKey.WRITE_TXN_MARKERS: ("1-2", 1),
    ApiKey.TXN_OFFSET_COMMIT: ("0-6", 3),
    ApiKey.DESCRIBE_ACLS: ("1-3", 2),
    ApiKey.CREATE_ACLS: ("1-3", 2),
    ApiKey.DELETE_ACLS: ("1-3", 2),
    ApiKey.DESCRIBE_CONFIGS: ("1-4", 4),
    ApiKey.ALTER_CONFIGS: ("0-2", 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("1-2", 2),
    ApiKey.DESCRIBE_LOG_DIRS: ("1-5", 2),
    ApiKey.SASL_AUTHENTICATE: ("0-2", 2),
    ApiKey.CREATE_PARTITIONS: ("0-3", 2),
    ApiKey.CREATE_DELEGATION_TOKEN: ("1-3", 2),
    ApiKey.RENEW_DELEGATION_TOKEN: ("1-2", 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("1-2", 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ("1-3", 2),
    ApiKey.DELETE_GROUPS: ("0-3", 2),
    ApiKey.ELECT_LEADERS: ("0-2", 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("0-1", 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("0-1", 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("0", 0),
    ApiKey.OFFSET_DELETE: ("0", NEVER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ("0-1", 1),
    ApiKey.ALTER_CLIENT_QUOTAS: ("0-1", 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("0", 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("0", 0),
    ApiKey.DESCRIBE_QUORUM: ("0-2", 0),
    ApiKey.UPDATE_FEATURES: ("0-2", 0),
    ApiKey.DESCRIBE_CLUSTER: ("0-2", 0),
    ApiKey.DESCRIBE_PRODUCERS: ("0", 0),
    ApiKey.UNREGISTER_BROKER: ("0", 0),
    ApiKey.DESCRIBE_TRANSACTIONS: ("0", 0),
    ApiKey.LIST_TRANSACTIONS: ("0-2", 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("0-1", 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("0-1", 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ("0", 0),
    ApiKey.PUSH_TELEMETRY: ("0", 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ("0", 0),
    ApiKey.PUSH_TELEMETRY: ("0", 0),
    ApiKey.LIST_CONFIG_RESOURCES: ("0-1", 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("0", 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: ("1", 0),
    ApiKey.SHARE_GROUP_DESCRIBE: ("1", 0),
    ApiKey.SHARE_FETCH: ("1-2", 0),
    ApiKey.SHARE_ACKNOWLEDGE: ("1-2", 0),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ("0-1", 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: ("0-1", 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ("0-1", 0),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ("0", 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ("0", 0),
}
OWN = {key for key in ApiKey if key >= ApiKey.COMMIT_SET}
"""APIs that Kafka does not have."""


@pytest.mark.parametrize("cls", [cls for cls in MESSAGES if message_of(cls).key not in OWN], ids=label)
def test_versions_are_those_of_kafka(cls: type) -> None:
    message = message_of(cls)
    versions, flexible_from = KAFKA[message.key]
    assert (message.versions[0], message.versions[-1]) == version_range(versions)
    assert message.flexible_from == flexible_from


def test_every_request_has_a_response() -> None:
    assert set(REQUESTS) == set(RESPONSES)
    for key, request in REQUESTS.items():
        assert request.__name__.removesuffix("Request") == RESPONSES[key].__name__.removesuffix("Response")


@pytest.mark.parametrize("cls", MESSAGES, ids=label)
def test_tags_are_unique_and_stand_in_flexible_versions_only(cls: type) -> None:
    message = message_of(cls)

    def check(part: type) -> None:
        tags = [entry.tag for entry in fields_of(part) if entry.tag is not None]
        assert len(tags) == len(set(tags))
        for entry in fields_of(part):
            assert entry.tag is None or entry.versions[0] >= message.flexible_from
            if entry.struct is not None:
                check(entry.struct)

    check(cls)


@pytest.mark.parametrize(("text", "versions"), [("3-5", (3, 5)), ("3", (3, 3)), ("3+", (3, NEVER)), ("0-0", (0, 0))])
def test_a_range_of_versions_is_read(text: str, versions: tuple[int, int]) -> None:
    assert version_range(text) == versions


def test_no_version_is_in_the_range_none() -> None:
    first, last = version_range("none")
    assert first > last


@struct
class Point:
    x: Int32
    tags: Array[String] = field(default=())
    label: String | None = field("2+", default=None)


def test_values_are_equal_whether_they_came_from_a_list_or_a_tuple() -> None:
    assert Point(x=1, tags=["a"]) == Point(x=1, tags=("a",))
    assert Point(x=1, tags=["a"]) != Point(x=1, tags=["b"])
    assert Point(x=1) != 1


def test_a_value_shows_its_fields() -> None:
    assert repr(Point(x=1, label="here")) == "Point(x=1, tags=(), label='here')"


def test_a_value_has_no_room_for_other_attributes() -> None:
    with pytest.raises(AttributeError, match="z"):
        Point(x=1).z = 2  # type: ignore[attr-defined]


def test_arguments_are_named() -> None:
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[misc]


def test_an_element_of_an_array_has_neither_its_default_nor_its_null() -> None:
    element = next(entry for entry in fields_of(Point) if entry.name == "tags").element()
    assert (element.initial, element.is_array, element.ever_null) == ("", False, False)


def test_a_field_that_is_no_wire_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.x: <class 'int'> is not a wire type"):

        @struct
        class Wrong:
            x: int


@pytest.mark.parametrize("default", [0, 5, None])
def test_a_default_outside_of_field_is_refused(default: int | None) -> None:
    with pytest.raises(TypeError, match=rf"use field\(default={default}\)"):

        @struct
        class Wrong:
            x: Int32 = default  # type: ignore[assignment]
