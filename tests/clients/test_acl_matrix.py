"""Every Kafka API, with and without the permissions that it needs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop
from confluent_kafka.admin import NewTopic

from penstock.broker.registry import APIS, load_handlers
from penstock.client.connection import Connection
from penstock.foundation.acls import Operation, PatternType, Permission, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.commit_set import CommitSetParticipant
from penstock.wire.messages.create_acls import AclCreation
from penstock.wire.messages.delete_topics import DeleteTopicState
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.queue_claim import SURVEY
from penstock.wire.schema import NIL_UUID, REQUESTS, Field, fields_of
from tests.clients.acl_lab import ADMIN, DENIALS, AclLab, Rule, grant, revoke_all
from tests.clients.waiting import PATIENCE_S

load_handlers()

TOPIC, GROUP, TXN = "acl-topic", "acl-group", "acl-txn"
STRANGER, FRIEND = "eve", "ann"
TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_FAILED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TXN_FAILED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
STRINGS = {
    **dict.fromkeys(("group_id", "group", "groups", "groups_names", "group_ids", "coordinator_keys", "key"), GROUP),
    **dict.fromkeys(("transactional_id", "transactional_ids"), TXN),
    **dict.fromkeys(("name", "topic", "topic_name", "resource_name", "subscribed_topic_names"), TOPIC),
    "principal": "User:zoe",
    "host": "*",
}


def on_topic(*operations: Operation) -> tuple[Rule, ...]:
    return tuple(Rule(operation, ResourceType.TOPIC, TOPIC) for operation in operations)


def on_group(operation: Operation) -> Rule:
    return Rule(operation, ResourceType.GROUP, GROUP)


def on_txn(operation: Operation) -> Rule:
    return Rule(operation, ResourceType.TRANSACTIONAL_ID, TXN)


@dataclass(frozen=True)
class Case:
    code: ErrorCode
    """What a client without any permission gets."""
    needs: tuple[Rule, ...]
    """The permissions without one of which the request is denied."""
    values: dict[str, Any] = field(default_factory=dict)
    """Fields of the request that are not made up."""


def cluster(operation: Operation, **values: Any) -> Case:
    return Case(CLUSTER_FAILED, (Rule(operation),), values)


def topic(operation: Operation, **values: Any) -> Case:
    return Case(TOPIC_FAILED, on_topic(operation), values)


def group(operation: Operation, **values: Any) -> Case:
    return Case(GROUP_FAILED, (on_group(operation),), values)


READ_GROUP, READ_TOPIC = on_group(Operation.READ), on_topic(Operation.READ)[0]
WRITE_TXN = on_txn(Operation.WRITE)
CREATION = AclCreation(
    resource_type=ResourceType.TOPIC,
    resource_name=TOPIC,
    resource_pattern_type=PatternType.LITERAL,
    principal="User:bob",
    host="*",
    operation=Operation.READ,
    permission_type=Permission.ALLOW,
)
EVERYTHING = {
    "resource_type_filter": ResourceType.ANY,
    "pattern_type_filter": PatternType.ANY,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}
CASES = {
    ApiKey.PRODUCE: topic(Operation.WRITE, transactional_id=None, acks=1),
    ApiKey.FETCH: topic(Operation.READ, session_id=0, session_epoch=-1),
    ApiKey.LIST_OFFSETS: topic(Operation.DESCRIBE),
    ApiKey.METADATA: topic(Operation.DESCRIBE, topics=[MetadataRequestTopic(name=TOPIC)]),
    ApiKey.OFFSET_COMMIT: Case(GROUP_FAILED, (READ_GROUP, READ_TOPIC)),
    ApiKey.OFFSET_FETCH: Case(GROUP_FAILED, (on_group(Operation.DESCRIBE), *on_topic(Operation.DESCRIBE))),
    ApiKey.FIND_COORDINATOR: group(Operation.DESCRIBE),
    ApiKey.JOIN_GROUP: group(Operation.READ),
    ApiKey.HEARTBEAT: group(Operation.READ),
    ApiKey.LEAVE_GROUP: group(Operation.READ),
    ApiKey.SYNC_GROUP: group(Operation.READ),
    ApiKey.DESCRIBE_GROUPS: group(Operation.DESCRIBE),
    ApiKey.CREATE_TOPICS: topic(Operation.CREATE),
    ApiKey.DELETE_TOPICS: Case(
        TOPIC_FAILED,
        (Rule(Operation.DELETE, ResourceType.TOPIC, "missing"),),
        {"topics": [DeleteTopicState(name="missing", topic_id=NIL_UUID)]},
    ),
    ApiKey.DELETE_RECORDS: topic(Operation.DELETE),
    ApiKey.INIT_PRODUCER_ID: Case(TXN_FAILED, (WRITE_TXN,)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topic(Operation.DESCRIBE),
    ApiKey.ADD_PARTITIONS_TO_TXN: cluster(Operation.CLUSTER_ACTION),
    ApiKey.ADD_OFFSETS_TO_TXN: Case(TXN_FAILED, (WRITE_TXN, READ_GROUP)),
    ApiKey.END_TXN: Case(TXN_FAILED, (WRITE_TXN,)),
    ApiKey.WRITE_TXN_MARKERS: cluster(Operation.CLUSTER_ACTION),
    ApiKey.TXN_OFFSET_COMMIT: Case(TXN_FAILED, (WRITE_TXN, READ_GROUP, READ_TOPIC)),
    ApiKey.DESCRIBE_ACLS: Case(CLUSTER_FAILED, (Rule(Operation.DESCRIBE),), EVERYTHING),
    ApiKey.CREATE_ACLS: cluster(Operation.ALTER, creations=[CREATION]),
    ApiKey.DELETE_ACLS: cluster(Operation.ALTER),
    ApiKey.DESCRIBE_CONFIGS: topic(Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: topic(Operation.ALTER_CONFIGS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: topic(Operation.ALTER_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: cluster(Operation.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: cluster(Operation.DESCRIBE),
    ApiKey.CREATE_PARTITIONS: topic(Operation.ALTER),
    ApiKey.DELETE_GROUPS: group(Operation.DELETE),
    ApiKey.ELECT_LEADERS: cluster(Operation.ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: cluster(Operation.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: cluster(Operation.DESCRIBE),
    ApiKey.OFFSET_DELETE: Case(GROUP_FAILED, (on_group(Operation.DELETE),)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster(Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: cluster(Operation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: cluster(Operation.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: cluster(Operation.ALTER),
    ApiKey.DESCRIBE_QUORUM: cluster(Operation.DESCRIBE),
    ApiKey.UPDATE_FEATURES: cluster(Operation.ALTER),
    ApiKey.DESCRIBE_PRODUCERS: topic(Operation.READ),
    ApiKey.UNREGISTER_BROKER: cluster(Operation.ALTER),
    ApiKey.DESCRIBE_TRANSACTIONS: Case(TXN_FAILED, (on_txn(Operation.DESCRIBE),)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Case(
        GROUP_FAILED, (READ_GROUP, *on_topic(Operation.DESCRIBE)), {"subscribed_topic_names": [TOPIC]}
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: Case(
        GROUP_FAILED, (READ_GROUP, *on_topic(Operation.DESCRIBE)), {"subscribed_topic_names": [TOPIC]}
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: group(Operation.DESCRIBE),
    ApiKey.SHARE_GROUP_DESCRIBE: group(Operation.DESCRIBE),
    ApiKey.LIST_CONFIG_RESOURCES: cluster(Operation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topic(Operation.DESCRIBE),
    ApiKey.SHARE_FETCH: Case(GROUP_FAILED, (READ_GROUP, READ_TOPIC), {"group_id": GROUP, "max_records": 1}),
    ApiKey.SHARE_ACKNOWLEDGE: group(Operation.READ, group_id=GROUP),
    ApiKey.STREAMS_GROUP_HEARTBEAT: group(Operation.READ),
    ApiKey.STREAMS_GROUP_DESCRIBE: group(Operation.DESCRIBE),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Case(
        GROUP_FAILED, (on_group(Operation.DESCRIBE), *on_topic(Operation.DESCRIBE))
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Case(
        GROUP_FAILED, (Rule(Operation.READ, ResourceType.GROUP, "idle"), READ_TOPIC), {"group_id": "idle"}
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Case(GROUP_FAILED, (on_group(Operation.DELETE), READ_TOPIC)),
    ApiKey.COMMIT_SET: Case(
        TXN_FAILED,
        (WRITE_TXN, Rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "spark/query")),
        {
            "query": "query",
            "participants": [CommitSetParticipant(transactional_id=TXN, producer_id=0, producer_epoch=0)],
        },
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: Case(
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        (Rule(Operation.CREATE_TOKENS, ResourceType.USER, "User:zoe"),),
        {"owner_principal_type": "User", "owner_principal_name": "zoe", "renewers": []},
    ),
    ApiKey.QUEUE_SEND: cluster(Operation.CLUSTER_ACTION),
    ApiKey.QUEUE_RECEIVE: cluster(Operation.CLUSTER_ACTION),
    ApiKey.QUEUE_ACKNOWLEDGE: cluster(Operation.CLUSTER_ACTION),
    ApiKey.QUEUE_CONTROL: cluster(Operation.CLUSTER_ACTION),
    ApiKey.QUEUE_PEEK: cluster(Operation.CLUSTER_ACTION),
    ApiKey.SHARE_STATE: cluster(Operation.CLUSTER_ACTION),
    ApiKey.QUEUE_CLAIM: Case(TOPIC_FAILED, (READ_TOPIC, READ_GROUP), {"action": SURVEY}),
    ApiKey.DELAYED_MESSAGES: topic(Operation.READ),
    ApiKey.REGISTRY_CALL: cluster(Operation.CLUSTER_ACTION),
    ApiKey.KNOWN_SCHEMA_IDS: cluster(Operation.CLUSTER_ACTION),
    ApiKey.RESTORE_STATE: cluster(Operation.CLUSTER_ACTION),
    ApiKey.CREATE_ACCESS_KEY: cluster(Operation.ALTER),
    ApiKey.ALTER_ACCESS_KEYS: cluster(Operation.ALTER),
    ApiKey.DESCRIBE_ACCESS_KEYS: cluster(Operation.DESCRIBE),
}
"""What each API needs."""
FOR_ALL = {
    ApiKey.API_VERSIONS: "clients call it before they log in",
    ApiKey.SASL_HANDSHAKE: "it begins a login",
    ApiKey.SASL_AUTHENTICATE: "it is a login",
    ApiKey.DESCRIBE_CLUSTER: "as in Kafka: every client must find the brokers",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "as in Kafka",
    ApiKey.PUSH_TELEMETRY: "as in Kafka",
    ApiKey.LIST_GROUPS: "omits the others: test_acls.py",
    ApiKey.LIST_TRANSACTIONS: "omits the others: test_acls.py",
    ApiKey.RENEW_DELEGATION_TOKEN: "for the owner and renewers of the token: test_delegation_tokens.py",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "for the owner and renewers of the token: test_delegation_tokens.py",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "omits the others: test_delegation_tokens.py",
    ApiKey.QUEUE_DELIVER: "answers that there is no such ticket: the test below",
}
"""The APIs that deny nothing, with the reason."""


def test_every_api_is_in_the_matrix() -> None:
    assert sorted(APIS) == sorted((*CASES, *FOR_ALL))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclLab]:
    lab = AclLab(tmp_path_factory.mktemp("acls"), [STRANGER, FRIEND])
    lab.admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(PATIENCE_S)
    uvloop.run(find_coordinators(lab))
    yield lab
    lab.broker.finish()


async def find_coordinators(lab: AclLab) -> None:
    """Creates the internal topics: without them, some requests fail for another reason."""
    admin = await lab.connect(ADMIN)
    try:
        for key_type, name in ((0, GROUP), (1, TXN)):
            await admin.request(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name]))
    finally:
        await admin.close()


def sample(kind: type, topic_id: bytes, values: dict[str, Any]) -> Any:
    """Makes up a message: one element in each array, the names of the tests' resources, and zeros."""
    made = {}
    for entry in fields_of(kind):
        if entry.name in values:
            made[entry.name] = values[entry.name]
        elif entry.required or entry.name in ("topics", "groups", "coordinator_keys", "transactions", "topic_id"):
            made[entry.name] = _value(entry, topic_id)
    return kind(**made)


def _value(entry: Field, topic_id: bytes) -> Any:
    if entry.name == "acknowledgement_batches":
        return []
    if entry.is_array:
        return [_value(entry.element(), topic_id)]
    if entry.struct is not None:
        return sample(entry.struct, topic_id, {})
    if entry.kind == "string":
        return STRINGS.get(entry.name, "x")
    if entry.kind == "uuid":
        return topic_id
    if entry.kind in ("bytes", "records"):
        return b""
    return {"resource_type": ResourceType.TOPIC}.get(entry.name, entry.initial)


def codes_in(message: Any) -> set[ErrorCode]:
    """Returns all error codes of a response. Those between brokers, for queues, have only a message."""
    found = set()
    for entry in fields_of(type(message)):
        value = getattr(message, entry.name)
        if entry.name.endswith("error_code"):
            found.add(ErrorCode(value))
        elif entry.name == "error_message" and "no permission for cluster action" in (value or ""):
            found.add(CLUSTER_FAILED)
        elif entry.struct is not None and value is not None:
            for each in value if entry.is_array else [value]:
                found |= codes_in(each)
    return found


async def topic_id_of(admin: Connection) -> bytes:
    answer = await admin.request(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
    return bytes(answer.topics[0].topic_id)


@pytest.mark.parametrize("key", CASES, ids=lambda key: key.name.lower())
def test_a_request_needs_its_permissions(lab: AclLab, key: ApiKey) -> None:
    case = CASES[key]

    async def check() -> None:
        admin, stranger, friend = [await lab.connect(name) for name in (ADMIN, STRANGER, FRIEND)]
        try:
            request = sample(REQUESTS[key], await topic_id_of(admin), case.values)
            assert codes_in(await stranger.request(request)) & DENIALS == {case.code}
            for missing in case.needs if len(case.needs) > 1 else ():
                await grant(admin, FRIEND, *(need for need in case.needs if need is not missing))
                assert codes_in(await friend.request(request)) & DENIALS, f"not denied without {missing}"
                await revoke_all(admin, FRIEND)
            await grant(admin, FRIEND, *case.needs)
            assert not codes_in(await friend.request(request)) & DENIALS
        finally:
            await revoke_all(admin, FRIEND)
            for connection in (admin, stranger, friend):
                await connection.close()

    uvloop.run(check())


def test_messages_of_queues_are_delivered_only_by_brokers(lab: AclLab) -> None:
    async def check() -> None:
        stranger = await lab.connect(STRANGER)
        try:
            answer = await stranger.request(sample(REQUESTS[ApiKey.QUEUE_DELIVER], bytes(16), {"messages": []}))
            assert answer.is_taken is False
        finally:
            await stranger.close()

    uvloop.run(check())
