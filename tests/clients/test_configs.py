"""Settings of topics and brokers, as the clients that can administer see and change them."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from penstock.broker.config_admin import Resource
from penstock.broker.handlers.incremental_alter_configs import Operation
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .driver_kafka_python import ConfigResource as KafkaPythonResource
from .driver_kafka_python import ConfigResourceType, KafkaPythonDriver
from .drivers import AdminDriver, Outgoing, refused
from .raw import RawClient
from .waiting import PATIENCE_S

TOPIC, DYNAMIC_BROKER, DYNAMIC_CLUSTER, STATIC, DEFAULT = 1, 2, 3, 4, 5
"""Sources in DescribeConfigs."""


def test_a_topic_is_made_with_settings_of_its_own(admin_client: AdminDriver, topic: str) -> None:
    admin_client.create_topic(topic, configs={"segment.bytes": "1048576", "cleanup.policy": "compact,delete"})
    assert admin_client.config(topic, "segment.bytes") == ("1048576", TOPIC)
    assert admin_client.config(topic, "cleanup.policy") == ("compact,delete", TOPIC)
    assert admin_client.config(topic, "retention.bytes") == ("-1", DEFAULT)


@pytest.mark.parametrize(
    "wrong",
    [
        {"retention.ms": "soon"},
        {"retention.ms": "-2"},
        {"segment.bytes": "1"},
        {"segment.bytes": "99999999999"},
        {"cleanup.policy": "shred"},
        {"message.timestamp.type": "Never"},
        {"min.cleanable.dirty.ratio": "1.5"},
        {"no.such.setting": "1"},
        {"storage": "memory", "cleanup.policy": "compact"},
    ],
    ids=lambda wrong: ",".join(f"{name}={value}" for name, value in wrong.items()),
)
def test_a_wrong_setting_is_refused(confluent: ConfluentDriver, topic: str, wrong: dict[str, str]) -> None:
    with refused(confluent, ErrorCode.INVALID_CONFIG):
        confluent.create_topic(topic, configs=wrong)
    confluent.create_topic(topic)
    with refused(confluent, ErrorCode.INVALID_CONFIG):
        confluent.alter_configs(topic, wrong)
    assert all(confluent.config(topic, name)[1] == DEFAULT for name in wrong if name != "no.such.setting")


KAFKA_SETTINGS = {
    "cleanup.policy": "compact",
    "compression.gzip.level": "5",
    "compression.lz4.level": "3",
    "compression.type": "gzip",
    "compression.zstd.level": "7",
    "delete.retention.ms": "1000",
    "file.delete.delay.ms": "1000",
    "flush.messages": "1000",
    "flush.ms": "1000",
    "follower.replication.throttled.replicas": "*",
    "index.interval.bytes": "1024",
    "leader.replication.throttled.replicas": "0:1",
    "local.retention.bytes": "1000",
    "local.retention.ms": "1000",
    "max.compaction.lag.ms": "1000000",
    "max.message.bytes": "2000000",
    "message.timestamp.after.max.ms": "1000000",
    "message.timestamp.before.max.ms": "1000000",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.25",
    "min.compaction.lag.ms": "10",
    "min.insync.replicas": "2",
    "preallocate": "true",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "remote.storage.enable": "false",
    "retention.bytes": "1000000",
    "retention.ms": "1000000",
    "segment.bytes": "2000000",
    "segment.index.bytes": "1048576",
    "segment.jitter.ms": "10",
    "segment.ms": "100000",
    "unclean.leader.election.enable": "true",
}
"""All that a topic of Kafka 4.4 has."""


def test_every_setting_that_a_topic_of_kafka_has_is_taken_and_shown(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic, configs=KAFKA_SETTINGS)
    assert {name: confluent.config(topic, name) for name in KAFKA_SETTINGS} == {
        name: (value, TOPIC) for name, value in KAFKA_SETTINGS.items()
    }
    confluent.incremental(ResourceType.TOPIC, topic, [(name, "DELETE", None) for name in KAFKA_SETTINGS])
    assert {confluent.config(topic, name)[1] for name in KAFKA_SETTINGS} == {DEFAULT}
    assert confluent.config(topic, "flush.messages") == (str(2**63 - 1), DEFAULT)


def test_tiered_storage_is_refused_as_by_a_kafka_that_has_none(confluent: ConfluentDriver, topic: str) -> None:
    with refused(confluent, ErrorCode.INVALID_CONFIG):
        confluent.create_topic(topic, configs={"remote.storage.enable": "true"})


@pytest.mark.parametrize("kind", [ResourceType.TOPIC, ResourceType.BROKER])
def test_a_setting_that_is_not_there_can_be_deleted(
    confluent: ConfluentDriver, topic: str, kind: ResourceType
) -> None:
    """kafka-reassign-partitions --verify deletes throttles of replicas and of logs, set or not, known or not."""
    confluent.create_topic(topic, configs={"retention.ms": "1000"})
    name = topic if kind is ResourceType.TOPIC else "1"
    gone = ["no.such.setting", "replica.alter.log.dirs.io.max.bytes.per.second", "retention.ms"]
    confluent.incremental(kind, name, [(each, "DELETE", None) for each in gone])
    if kind is ResourceType.TOPIC:
        assert confluent.config(topic, "retention.ms")[1] == DEFAULT
    with refused(confluent, ErrorCode.INVALID_CONFIG):
        confluent.incremental(kind, name, [("no.such.setting", "SET", "1")])


def test_every_client_gets_an_error_for_an_invalid_setting(admin_client: AdminDriver, topic: str) -> None:
    with refused(admin_client, ErrorCode.INVALID_CONFIG):
        admin_client.create_topic(topic, configs={"retention.ms": "soon"})


def test_an_error_says_what_would_have_been_right(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)
    with pytest.raises(confluent.error) as caught:
        confluent.alter_configs(topic, {"cleanup.policy": "shred"})
    assert caught.value.args[0].str().endswith("expected a list of delete or compact")


def test_settings_of_a_topic_that_is_not_there_are_refused(confluent: ConfluentDriver, topic: str) -> None:
    with refused(confluent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        confluent.configs(ResourceType.TOPIC, topic)
    with refused(confluent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        confluent.alter_configs(topic, {"retention.ms": "1"})


def test_a_list_is_appended_to_and_subtracted_from(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)

    def change(operation: str, value: str | None) -> tuple[str, int]:
        confluent.incremental(ResourceType.TOPIC, topic, [("cleanup.policy", operation, value)])
        return confluent.config(topic, "cleanup.policy")

    assert change("APPEND", "compact") == ("delete,compact", TOPIC)
    assert change("APPEND", "compact") == ("delete,compact", TOPIC)
    assert change("SUBTRACT", "delete") == ("compact", TOPIC)
    assert change("DELETE", None) == ("delete", DEFAULT)


def test_a_number_is_neither_appended_to_nor_subtracted_from(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)
    with refused(confluent, ErrorCode.INVALID_CONFIG):
        confluent.incremental(ResourceType.TOPIC, topic, [("retention.ms", "APPEND", "1")])


def test_an_incremental_change_leaves_other_settings_alone(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic, configs={"retention.ms": "1000000", "segment.bytes": "1048576"})
    changes = [("retention.ms", "SET", "2000000"), ("segment.ms", "SET", "60000")]
    confluent.incremental(ResourceType.TOPIC, topic, changes)
    assert confluent.config(topic, "retention.ms") == ("2000000", TOPIC)
    assert confluent.config(topic, "segment.ms") == ("60000", TOPIC)
    assert confluent.config(topic, "segment.bytes") == ("1048576", TOPIC)


def replace_configs(confluent: ConfluentDriver, topic: str, configs: dict[str, str], **options: bool) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config=configs)
    with pytest.deprecated_call():
        future = confluent.admin.alter_configs([resource], **options)[resource]
    future.result(PATIENCE_S)


def test_the_older_way_of_changing_replaces_all_settings(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic, configs={"retention.ms": "1000000"})
    replace_configs(confluent, topic, {"segment.bytes": "1048576"})
    assert confluent.config(topic, "segment.bytes") == ("1048576", TOPIC)
    assert confluent.config(topic, "retention.ms")[1] == DEFAULT


def test_a_change_that_is_only_tried_changes_nothing(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)
    replace_configs(confluent, topic, {"segment.bytes": "1048576"}, validate_only=True)
    assert confluent.config(topic, "segment.bytes")[1] == DEFAULT


def test_one_wrong_change_of_several_changes_nothing(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)
    with refused(confluent, ErrorCode.INVALID_CONFIG):
        confluent.alter_configs(topic, {"segment.bytes": "1048576", "retention.ms": "soon"})
    assert confluent.config(topic, "segment.bytes")[1] == DEFAULT


def test_where_a_topic_is_kept_is_fixed_when_it_is_made(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)
    with refused(confluent, ErrorCode.INVALID_CONFIG):
        confluent.alter_configs(topic, {"storage": "memory"})


def test_synonyms_tell_what_else_a_setting_could_have_been(broker: BrokerProcess, topic: str) -> None:
    driver = KafkaPythonDriver(broker.kafka)
    driver.create_topic(topic, configs={"segment.bytes": "1048576"})
    with driver.admin() as admin:
        resource = KafkaPythonResource(ConfigResourceType.TOPIC, topic, {"segment.bytes": None})
        found = admin.describe_configs([resource], include_synonyms=True, config_filter="all")
    entry = found["topic"][topic]["segment.bytes"]
    assert entry["config_type"] == "INT"
    assert [(synonym["name"], synonym["value"]) for synonym in entry["synonyms"]] == [
        ("segment.bytes", "1048576"),
        ("log.segment.bytes", str(1 << 30)),
    ]


def test_broker_settings_have_their_sources(confluent: ConfluentDriver) -> None:
    found = confluent.configs(ResourceType.BROKER, "1")
    assert ConfigSource(found["log.cleaner.backoff.ms"].source) is ConfigSource.STATIC_BROKER_CONFIG
    assert found["log.cleaner.backoff.ms"].value == "100"
    assert ConfigSource(found["num.partitions"].source) is ConfigSource.DEFAULT_CONFIG
    assert found["socket.request.max.bytes"].is_read_only
    assert not found["num.partitions"].is_read_only


def set_cluster_wide(broker: BrokerProcess, name: str, value: str | None) -> None:
    """A setting of all brokers; None takes it back. No client library here can name them all at once."""
    operation = Operation.DELETE if value is None else Operation.SET
    change = AlterableConfig(name=name, config_operation=operation, value=value)
    every_broker = AlterConfigsResource(resource_type=Resource.BROKER, resource_name="", configs=[change])
    with RawClient(broker.address) as raw:
        answer = raw.ask(IncrementalAlterConfigsRequest(resources=[every_broker], validate_only=False), 1)
    assert [result.error_code for result in answer.responses] == [0]


def test_broker_settings_change_while_it_runs(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker({"num.partitions": 2})
    confluent = ConfluentDriver(broker.kafka)

    def partitions_of_a_new_topic(name: str) -> int:
        confluent.produce(name, [Outgoing(value=b"x")])
        return len(confluent.admin.list_topics(timeout=PATIENCE_S).topics[name].partitions)

    assert partitions_of_a_new_topic("a") == 2
    set_cluster_wide(broker, "num.partitions", "3")
    assert partitions_of_a_new_topic("b") == 3
    confluent.incremental(ResourceType.BROKER, "1", [("num.partitions", "SET", "4")])
    assert partitions_of_a_new_topic("c") == 4
    entry = confluent.configs(ResourceType.BROKER, "1")["num.partitions"]
    assert (entry.value, int(entry.source)) == ("4", DYNAMIC_BROKER)
    confluent.incremental(ResourceType.BROKER, "1", [("num.partitions", "DELETE", None)])
    entry = confluent.configs(ResourceType.BROKER, "1")["num.partitions"]
    assert (entry.value, int(entry.source)) == ("3", DYNAMIC_CLUSTER)
    broker.stop()
    broker.start()
    assert partitions_of_a_new_topic("d") == 3
    set_cluster_wide(broker, "num.partitions", None)
    entry = confluent.configs(ResourceType.BROKER, "1")["num.partitions"]
    assert (entry.value, int(entry.source)) == ("2", STATIC)


def test_a_brokers_setting_is_the_default_of_its_topics(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    confluent = ConfluentDriver(broker.kafka)
    confluent.create_topic("plain")
    confluent.create_topic("own", configs={"max.message.bytes": "5000"})
    set_cluster_wide(broker, "message.max.bytes", "2000")
    assert confluent.config("plain", "max.message.bytes") == ("2000", DYNAMIC_CLUSTER)
    assert confluent.config("own", "max.message.bytes") == ("5000", TOPIC)
    large = [Outgoing(value=b"x" * 3000)]
    confluent.produce("own", large)
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        confluent.produce("plain", large)


@pytest.mark.parametrize(
    ("name", "setting", "value", "code"),
    [
        pytest.param("1", "num.partitions", "none", ErrorCode.INVALID_CONFIG, id="wrong-value"),
        pytest.param("1", "no.such.setting", "1", ErrorCode.INVALID_CONFIG, id="unknown-setting"),
        pytest.param("1", "socket.request.max.bytes", "2048", ErrorCode.INVALID_CONFIG, id="read-at-start-only"),
    ],
)
def test_a_wrong_broker_setting_is_refused(
    confluent: ConfluentDriver, name: str, setting: str, value: str, code: ErrorCode
) -> None:
    before = confluent.configs(ResourceType.BROKER, name).get(setting)
    with refused(confluent, code):
        confluent.incremental(ResourceType.BROKER, name, [(setting, "SET", value)])
    after = confluent.configs(ResourceType.BROKER, name).get(setting)
    assert (before and before.value) == (after and after.value)
