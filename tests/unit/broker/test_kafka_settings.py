"""Kafka's broker settings in a file: supported, without effect, unknown, or refused."""

import pytest

from penstock.broker.kafka_settings import understand
from penstock.broker.settings import BROKER_SETTINGS, WITHOUT_EFFECT
from penstock.foundation.errors import InvalidConfig


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"log.retention.hours": "168"}, {"log.retention.ms": "604800000"}),
        ({"log.retention.minutes": "5"}, {"log.retention.ms": "300000"}),
        ({"log.retention.hours": "-1"}, {"log.retention.ms": "-1"}),
        ({"log.retention.hours": "1", "log.retention.minutes": "5"}, {"log.retention.ms": "300000"}),
        ({"log.retention.minutes": "5", "log.retention.ms": "7"}, {"log.retention.ms": "7"}),
        (
            {"log.roll.hours": "2", "log.roll.jitter.hours": "1"},
            {"log.roll.ms": "7200000", "log.roll.jitter.ms": "3600000"},
        ),
        ({"log.flush.scheduler.interval.ms": "1000"}, {"log.flush.interval.ms": "1000"}),
        ({"min.insync.replicas": "2", "num.partitions": "3"}, {"min.insync.replicas": "2", "num.partitions": "3"}),
        ({"node.id": "1", "log.dirs": "/d", "listeners": "PLAINTEXT://:1"}, {}),
        ({"log.cleaner.enable": "true"}, {}),
        (
            {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"},
            {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"},
        ),
    ],
)
def test_supported_settings_cause_no_warning(given: dict[str, str], expected: dict[str, str]) -> None:
    found = understand(given, is_strict=True)
    assert found.settings == {name: text for name, text in expected.items() if name in BROKER_SETTINGS.by_name}
    assert found.warnings == []


@pytest.mark.parametrize(
    "name",
    [
        "process.roles",
        "controller.quorum.voters",
        "socket.send.buffer.bytes",
        "zookeeper.connect",
        "log.flush.offset.checkpoint.interval.ms",
        "metric.reporters",
        "inter.broker.protocol.version",
        "remote.log.storage.system.enable",
        *sorted(WITHOUT_EFFECT),
    ],
)
def test_a_setting_of_kafka_that_has_no_effect_is_accepted_and_reported(name: str) -> None:
    assert understand({name: "1"}, is_strict=True).warnings == [f"{name} has no effect here"]


def test_a_name_that_is_not_known_is_reported_with_what_was_meant_or_refused() -> None:
    found = understand({"num.partition": "3", "my.own.setting": "x"}, is_strict=False)
    assert found.settings == {}
    assert found.warnings == [
        "num.partition is unknown and ignored; did you mean num.partitions?",
        "my.own.setting is unknown and ignored",
    ]
    with pytest.raises(InvalidConfig, match=r"did you mean num\.partitions\?"):
        understand({"num.partition": "3"}, is_strict=True)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("ssl.engine.factory.class", "org.example.Factory", "not supported"),
        ("sasl.login.class", "org.example.Login", "not supported"),
        ("listener.name.a.gssapi.sasl.login.class", "x", "not supported"),
        ("principal.builder.class", "org.example.Builder", "not supported"),
        ("log.cleaner.enable", "false", "not supported"),
        ("create.topic.policy.class.name", "org.example.Policy", "not supported"),
        ("lisetners", "PLAINTEXT://:9092", "did you mean listeners?"),
        ("ssl_keystore_location", "/k.jks", "did you mean ssl.keystore.location?"),
        ("authorizor.class.name", "org.example.Authorizer", "did you mean authorizer.class.name?"),
        ("log.flsh.interval.ms", "1000", "did you mean log.flush.interval.ms?"),
        ("min.insync.replica", "2", "did you mean min.insync.replicas?"),
        ("unclean.leader.electon.enable", "false", "did you mean unclean.leader.election.enable?"),
    ],
)
def test_settings_of_security_or_durability_are_never_ignored(name: str, text: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        understand({name: text}, is_strict=False)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "seven", "1.5", "-2"])
def test_a_value_in_another_unit_is_checked(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"log\.retention\.hours"):
        understand({"log.retention.hours": text}, is_strict=False)
