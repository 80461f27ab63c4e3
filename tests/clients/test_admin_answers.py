"""Admin requests for features that Penstock lacks: answered as Kafka does in that situation."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from penstock.broker.handlers.api_versions import FEATURES
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from penstock.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest, QuorumPartition, QuorumTopic
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import FeatureUpdate, UpdateFeaturesRequest
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .raw import RawClient

NODE_ID = 1


def acl(kind: type[Any]) -> Any:
    operation, permission = AclOperation.READ, AclPermissionType.ALLOW
    return kind(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", operation, permission)


def test_acls_are_disabled_without_an_authorizer(broker: BrokerProcess) -> None:
    admin = ConfluentDriver(broker.kafka).admin
    (created,) = admin.create_acls([acl(AclBinding)]).values()
    (deleted,) = admin.delete_acls([acl(AclBindingFilter)]).values()
    for answer in (created, deleted):
        with pytest.raises(KafkaException) as caught:
            answer.result()
        error = caught.value.args[0]
        assert (error.code(), error.str()) == (KafkaError.SECURITY_DISABLED, "No Authorizer is configured.")
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    with RawClient(broker.address) as raw:  # librdkafka takes an error for an empty list
        described = raw.ask(everything, 3)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])


def test_no_user_has_scram_credentials(broker: BrokerProcess) -> None:
    admin = ConfluentDriver(broker.kafka).admin
    assert admin.describe_user_scram_credentials().result() == {}
    (answer,) = admin.describe_user_scram_credentials(["alice"]).values()
    with pytest.raises(KafkaException) as caught:
        answer.result()
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_there_are_no_quotas(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as raw:
        answer = raw.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
    assert (answer.error_code, answer.entries) == (ErrorCode.NONE, [])


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3),
        (RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1), 2),
        (ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), 2),
        (DescribeDelegationTokenRequest(owners=None), 3),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else "",
)
def test_delegation_tokens_are_refused_as_on_a_listener_without_authentication(
    broker: BrokerProcess, request_: Any, version: int
) -> None:
    with RawClient(broker.address) as raw:
        assert raw.ask(request_, version).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_resources_with_settings_are_listed(broker: BrokerProcess, topic: str) -> None:
    ConfluentDriver(broker.kafka).create_topic(topic)
    with RawClient(broker.address) as raw:
        every = raw.ask(ListConfigResourcesRequest(), 1)
        topics = raw.ask(ListConfigResourcesRequest(resource_types=[2]), 1)
        unknown = raw.ask(ListConfigResourcesRequest(resource_types=[99]), 1)
        client_metrics = raw.ask(ListConfigResourcesRequest(), 0)
    found = {(entry.resource_type, entry.resource_name) for entry in every.config_resources}
    assert {(2, topic), (4, str(NODE_ID))} <= found
    assert {entry.resource_type for entry in topics.config_resources} == {2}
    assert topic in {entry.resource_name for entry in topics.config_resources}
    assert (unknown.error_code, unknown.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert (client_metrics.error_code, client_metrics.config_resources) == (ErrorCode.NONE, [])


def test_replicas_stay_in_the_one_folder_that_there_is(broker: BrokerProcess, topic: str) -> None:
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic(topic)
    topics = [
        AlterReplicaLogDirTopic(name=topic, partitions=[0, 7]),
        AlterReplicaLogDirTopic(name="nowhere", partitions=[0]),
    ]

    def codes(path: str) -> list[int]:
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        with RawClient(broker.address) as raw:
            results = raw.ask(request, 2).results
        return [entry.error_code for result in results for entry in result.partitions]

    gone = ErrorCode.REPLICA_NOT_AVAILABLE
    assert codes(str(broker.data_dir)) == [ErrorCode.NONE, gone, gone]
    assert codes("/elsewhere") == [ErrorCode.LOG_DIR_NOT_FOUND] * 3


def test_a_broker_is_registered_as_long_as_it_runs(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as raw:
        assert raw.ask(UnregisterBrokerRequest(broker_id=99), 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert raw.ask(UnregisterBrokerRequest(broker_id=NODE_ID), 0).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_have_the_level_of_the_release(broker: BrokerProcess, version: int) -> None:
    (name, (_, level)), *_ = FEATURES.items()
    invalid = ErrorCode.INVALID_UPDATE_VERSION
    with RawClient(broker.address) as raw:
        for feature, wanted, expected in ((name, level, 0), (name, level + 1, invalid), ("no.such", 1, invalid)):
            update = FeatureUpdate(feature=feature, max_version_level=wanted)
            answer = raw.ask(UpdateFeaturesRequest(feature_updates=[update]), version)
            code = answer.error_code if version == 2 else answer.results[0].error_code
            assert code == expected, (feature, wanted)


def test_brokers_form_no_quorum(broker: BrokerProcess) -> None:
    topic = QuorumTopic(topic_name="__cluster_metadata", partitions=[QuorumPartition(partition_index=0)])
    with RawClient(broker.address) as raw:
        answer = raw.ask(DescribeQuorumRequest(topics=[topic]), 2)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "etcd" in answer.error_message


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_a_broker_describes_brokers_only(broker: BrokerProcess, endpoint_type: int, code: ErrorCode) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    with RawClient(broker.address) as raw:
        answer: DescribeClusterResponse = raw.ask(request, 1)
    assert answer.error_code == code
    assert len(answer.brokers) == (code == ErrorCode.NONE)
