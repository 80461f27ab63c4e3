"""The effective value of a setting, and its source."""

import pytest

from penstock.broker.configs import CLUSTER_WIDE, Configs, Source
from penstock.broker.settings import BROKER_SETTINGS, OWN_SETTINGS, READ_ONLY, STATIC_SETTINGS
from penstock.cluster.image import ClusterImage, Topic
from penstock.foundation.errors import InvalidConfig
from penstock.log.setting_table import LOG_SETTINGS
from penstock.log.settings import LogSettings


class World:
    """An image that can be changed, and the settings of broker 1 in it."""

    def __init__(self, **static: str) -> None:
        self.image = ClusterImage()
        named = {name.replace("_", "."): text for name, text in static.items()}
        self.configs = Configs(static=named, node_id=1, image=lambda: self.image)

    def set(self, **of_node: dict[str, str]) -> None:
        """`set(node_1={...}, cluster={...})`."""
        names = {"cluster": CLUSTER_WIDE}
        tables = {names.get(name, name.removeprefix("node_")): values for name, values in of_node.items()}
        self.image = ClusterImage(broker_configs=tables, topics=self.image.topics)

    def topic(self, topic_id: int = 1, version: int = 1, **configs: str) -> Topic:
        topic = Topic(
            topic_id=topic_id.to_bytes(16, "big"),
            name=f"topic-{topic_id}",
            configs={name.replace("_", "."): text for name, text in configs.items()},
            version=version,
        )
        self.image = ClusterImage(
            broker_configs=self.image.broker_configs, topics={**self.image.topics, topic.topic_id: topic}
        )
        return topic


# -- brokers


def test_a_brokers_value_is_the_most_particular_one() -> None:
    world = World(num_partitions="2")
    assert world.configs["num.partitions"] == 2
    world.set(cluster={"num.partitions": "3"})
    assert world.configs["num.partitions"] == 3
    world.set(cluster={"num.partitions": "3"}, node_1={"num.partitions": "4"}, node_2={"num.partitions": "5"})
    assert world.configs["num.partitions"] == 4
    world.set()
    assert world.configs["num.partitions"] == 2


def test_every_value_is_listed_with_its_source_the_effective_one_first() -> None:
    world = World(num_partitions="2")
    world.set(cluster={"num.partitions": "3"}, node_1={"num.partitions": "4"})
    found = world.configs.broker_values(BROKER_SETTINGS.get("num.partitions"))
    assert [(value.text, value.source) for value in found] == [
        ("4", Source.DYNAMIC_BROKER),
        ("3", Source.DYNAMIC_CLUSTER),
        ("2", Source.STATIC_BROKER),
        ("1", Source.DEFAULT),
    ]
    assert [int(value.source) for value in found] == [2, 3, 4, 5]


def test_a_wrong_value_in_the_file_stops_the_start() -> None:
    with pytest.raises(InvalidConfig, match=r"num.partitions='0' is not allowed"):
        World(num_partitions="0")
    with pytest.raises(InvalidConfig, match="unknown setting"):
        World(no_such_thing="1")


# -- topics


def test_a_topics_value_is_its_own_then_the_brokers() -> None:
    world = World(log_retention_ms="20")
    assert world.configs.log_settings(world.topic()).retention_ms == 20
    assert world.configs.log_settings(world.topic(2, retention_ms="10")).retention_ms == 10
    world.set(cluster={"log.retention.ms": "30"})
    assert world.configs.log_settings(world.topic()).retention_ms == 30
    assert world.configs.log_settings(world.topic(2, retention_ms="10")).retention_ms == 10
    world.set(cluster={"log.retention.ms": "30"}, node_1={"log.retention.ms": "40"})
    assert world.configs.log_settings(world.topic()).retention_ms == 40


def test_values_of_a_topic_are_listed_with_the_names_of_their_sources() -> None:
    world = World(log_retention_ms="20")
    world.set(cluster={"log.retention.ms": "30"})
    found = world.configs.topic_values(LOG_SETTINGS.get("retention.ms"), {"retention.ms": "10"})
    assert [(value.name, value.text, value.source) for value in found] == [
        ("retention.ms", "10", Source.TOPIC),
        ("log.retention.ms", "30", Source.DYNAMIC_CLUSTER),
        ("log.retention.ms", "20", Source.STATIC_BROKER),
        ("log.retention.ms", str(7 * 86_400_000), Source.DEFAULT),
    ]


def test_a_setting_that_only_topics_have_is_their_own_or_the_default() -> None:
    world = World()
    storage = LOG_SETTINGS.get("storage")
    assert [value.source for value in world.configs.topic_values(storage, {})] == [Source.DEFAULT]
    found = world.configs.topic_values(storage, {"storage": "memory"})
    assert [(value.text, value.source) for value in found] == [("memory", Source.TOPIC), ("disk", Source.DEFAULT)]


def test_every_topic_setting_has_its_default_from_a_broker_setting_of_the_same_kind() -> None:
    for entry in LOG_SETTINGS:
        if entry.broker_name is not None:
            broker = BROKER_SETTINGS.get(entry.broker_name)
            assert (broker.kind, broker.default, broker.minimum, broker.maximum, broker.choices) == (
                entry.kind,
                entry.default,
                entry.minimum,
                entry.maximum,
                entry.choices,
            )
    assert {entry.name for entry in LOG_SETTINGS if entry.broker_name is None} == {
        "storage",
        "write.access",
        "delayed.messages",
        "delivery.delay.ms",
        "schema.validation",
        "confluent.key.schema.validation",
        "confluent.key.subject.name.strategy",
        "confluent.value.schema.validation",
        "confluent.value.subject.name.strategy",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }


def test_the_brokers_names_are_kafkas() -> None:
    names = {entry.name: entry.broker_name for entry in LOG_SETTINGS}
    assert names["retention.ms"] == "log.retention.ms"
    assert names["segment.ms"] == "log.roll.ms"
    assert names["max.message.bytes"] == "message.max.bytes"
    assert names["min.cleanable.dirty.ratio"] == "log.cleaner.min.cleanable.ratio"
    assert names["message.timestamp.type"] == "log.message.timestamp.type"
    assert names["cleanup.policy"] == "log.cleanup.policy"


def test_every_default_of_the_broker_can_be_read() -> None:
    parsed = BROKER_SETTINGS.parse({})
    assert len(parsed) >= len(OWN_SETTINGS) + len(STATIC_SETTINGS) + 20
    assert {entry.name for entry in STATIC_SETTINGS} == READ_ONLY
    assert World().configs["auto.create.topics.enable"] is True


# -- what is remembered


def test_a_topics_settings_are_made_once_for_each_version() -> None:
    world = World()
    first = world.configs.log_settings(world.topic(version=1))
    assert world.configs.log_settings(world.topic(version=1)) is first
    changed = world.configs.log_settings(world.topic(version=2, retention_ms="5"))
    assert changed.retention_ms == 5
    world.set(cluster={"log.retention.bytes": "7"})
    assert world.configs.log_settings(world.topic(version=2, retention_ms="5")).retention_bytes == 7


def test_settings_of_topics_that_are_gone_are_not_kept_for_ever() -> None:
    world = World()
    for number in range(1, 2000):
        world.image = ClusterImage()
        world.configs.log_settings(world.topic(number))
    assert len(world.configs._log_settings) < 200


def test_settings_that_would_not_go_together_are_refused() -> None:
    world = World()
    with pytest.raises(InvalidConfig, match="cannot be compacted"):
        world.configs.log_settings_of({"storage": "memory", "cleanup.policy": "compact"})
    world.set(cluster={"log.cleanup.policy": "compact"})
    with pytest.raises(InvalidConfig, match="cannot be compacted"):
        world.configs.log_settings_of({"storage": "memory"})
    assert world.configs.log_settings_of({}).compacted


def test_an_existing_topic_stays_valid_when_broker_defaults_change() -> None:
    world = World()
    memory, disk = world.topic(1, storage="memory"), world.topic(2, max_compaction_lag_ms="10")
    world.set(cluster={"log.cleanup.policy": "compact", "log.cleaner.min.compaction.lag.ms": "1000"})
    assert not world.configs.log_settings(memory).compacted
    assert world.configs.log_settings(disk).compacted


def test_an_unclean_election_is_the_topics_choice_or_else_the_clusters() -> None:
    world = World()
    assert not world.configs.is_unclean(world.topic(1))
    assert world.configs.is_unclean(world.topic(2, unclean_leader_election_enable="true"))
    world.set(cluster={"unclean.leader.election.enable": "true"})
    assert world.configs.is_unclean(world.topic(1))
    assert not world.configs.is_unclean(world.topic(3, unclean_leader_election_enable="false"))


def test_without_any_setting_a_topic_has_the_defaults() -> None:
    world = World()
    assert world.configs.log_settings(world.topic()) == LogSettings.of({})


def test_values_that_a_process_determines_are_listed_unless_they_were_set() -> None:
    world = World(broker_rack="r1")
    assert world.configs["advertised.http"] == ""
    world.configs.set_if_unset("advertised.http", "127.0.0.1:9324")
    assert world.configs["advertised.http"] == "127.0.0.1:9324"
    (value, _) = world.configs.broker_values(BROKER_SETTINGS.get("advertised.http"))
    assert (value.text, value.source) == ("127.0.0.1:9324", Source.STATIC_BROKER)
    assert "advertised.http" in READ_ONLY
    elsewhere = World(advertised_http="https://queues.example.org")
    elsewhere.configs.set_if_unset("advertised.http", "127.0.0.1:9324")
    assert elsewhere.configs["advertised.http"] == "https://queues.example.org"
