"""Client telemetry (KIP-714): subscriptions, what clients push, and how /metrics shows it."""

import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.records.compression import Codec, compress
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.list_config_resources import CLIENT_METRICS
from penstock.wire.schema import NIL_UUID
from tests.brokers import BrokerProcess
from tests.unit.telemetry.otlp_lab import counter, gauge, metrics_data, point

from .driver_confluent import ConfluentDriver
from .raw import RawClient
from .telemetry_raw import alter, ask, introduced, listed, push, subscribed
from .waiting import wait_until


def shown(broker: BrokerProcess, name: str) -> dict[frozenset[tuple[str, str]], float]:
    """The values of a metric, by the labels."""
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for line in lines:
        if matched := re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line):
            found[frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', matched[1]))] = float(matched[2])
    return found


def labelled(broker: BrokerProcess, name: str, **labels: str) -> list[float]:
    return [value for found, value in shown(broker, name).items() if labels.items() <= dict(found).items()]


def test_a_subscription_is_made_listed_described_changed_and_removed(raw: RawClient, topic: str) -> None:
    def described() -> dict[str, tuple[str, int]]:
        resource = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=topic, configuration_keys=None)
        (result,) = raw.ask(DescribeConfigsRequest(resources=[resource]), 4).results
        assert result.error_code == ErrorCode.NONE
        return {entry.name: (entry.value, entry.config_source) for entry in result.configs}

    default = {"metrics": ("", 5), "interval.ms": ("300000", 5), "match": ("", 5)}
    assert described() == default
    match = f"client_id={topic}"
    assert alter(raw, topic, metrics="org.apache.kafka.", match=match) == ErrorCode.NONE
    assert topic in listed(raw)
    assert described() == {**default, "metrics": ("org.apache.kafka.", 7), "match": (match, 7)}
    assert alter(raw, topic, interval_ms="1000") == ErrorCode.NONE
    assert described()["interval.ms"] == ("1000", 7)
    assert alter(raw, topic, interval_ms="99") == ErrorCode.INVALID_REQUEST
    assert alter(raw, topic, match="colour=blue") == ErrorCode.INVALID_CONFIG
    assert alter(raw, topic, colour="blue") == ErrorCode.INVALID_REQUEST
    assert alter(raw, "", metrics="*") == ErrorCode.INVALID_REQUEST
    assert alter(raw, topic, metrics=None, interval_ms=None, match=None) == ErrorCode.NONE
    assert topic not in listed(raw)
    assert described() == default


def test_a_client_that_nothing_is_subscribed_of_is_asked_for_nothing(raw: RawClient) -> None:
    subscription = ask(raw)
    assert (subscription.error_code, subscription.requested_metrics, subscription.push_interval_ms) == (
        ErrorCode.NONE,
        [],
        300_000,
    )
    assert (list(subscription.accepted_compression_types), subscription.telemetry_max_bytes) == (
        [4, 3, 1, 2],
        1 << 20,
    )
    assert subscription.client_instance_id != NIL_UUID
    assert not subscription.delta_temporality
    assert ask(raw, subscription.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize("codec", list(Codec))
def test_pushed_metrics_are_shown_until_the_client_disconnects(
    broker: BrokerProcess, topic: str, codec: Codec
) -> None:
    settings = {"metrics": "org.apache.kafka.,mine.", "interval_ms": "100"}
    with subscribed(broker, topic, **settings, match=f"client_software_name={topic}"):
        with RawClient(broker.address) as raw:
            introduced(raw, topic)
            subscription = ask(raw)
            assert subscription.requested_metrics == ["mine.", "org.apache.kafka."]
            metrics = metrics_data(
                [
                    gauge("org.apache.kafka.producer.record.send.rate", point(2.5, topic='a"b'), point(1.0)),
                    counter("mine.sends", point(7, client_id="forged")),
                    gauge("other.rate", point(1.0)),
                ],
                group_id="g",
            )
            assert push(raw, subscription, compress(codec, metrics), compression_type=codec) == ErrorCode.NONE
            rates = shown(broker, "penstock_client_producer_record_send_rate")
            mine = {
                dict(labels).get("topic"): value for labels, value in rates.items() if _is_of(labels, topic, broker)
            }
            assert mine == {r"a\"b": 2.5, None: 1.0}
            (sends,) = [dict(labels) for labels in shown(broker, "penstock_client_mine_sends_total")]
            assert sends["client_id"] == "raw"
            assert shown(broker, "penstock_client_other_rate") == {}
            assert labelled(broker, "penstock_client_info", client_software_name=topic, group_id="g") == [1.0]
        wait_until(
            lambda: not labelled(broker, "penstock_client_info", client_software_name=topic), "it is forgotten"
        )
        assert shown(broker, "penstock_client_mine_sends_total") == {}


def _is_of(labels: frozenset[tuple[str, str]], software: str, broker: BrokerProcess) -> bool:
    """Whether a value was pushed by a client of this software."""
    known = {
        dict(each)["client_instance_id"]
        for each in shown(broker, "penstock_client_info")
        if dict(each)["client_software_name"] == software
    }
    return dict(labels)["client_instance_id"] in known


BOMB = compress(Codec.ZSTD, bytes(2 << 20))


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"client_instance_id": NIL_UUID}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes((1 << 20) + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": BOMB, "compression_type": 4}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\x0a\x05abc"}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"no zstd", "compression_type": 4}, ErrorCode.INVALID_RECORD),
        ({"metrics": b""}, ErrorCode.NONE),
    ],
)
def test_a_wrong_push_is_refused(broker: BrokerProcess, topic: str, other: dict[str, Any], code: ErrorCode) -> None:
    with (
        subscribed(broker, topic, metrics="*", interval_ms="100", match=f"client_software_name={topic}"),
        RawClient(broker.address) as raw,
    ):
        introduced(raw, topic)
        assert push(raw, ask(raw), metrics_data([gauge("a", point(1.0))]), **other) == code


def test_only_so_many_values_are_shown(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker({"client.telemetry.max.series": 10})
    with subscribed(broker, "all", metrics="*", interval_ms="100"), RawClient(broker.address) as raw:
        points = [point(float(number), number=str(number)) for number in range(50)]
        assert push(raw, ask(raw), metrics_data([gauge("many", *points)])) == ErrorCode.NONE
        assert len(shown(broker, "penstock_client_many")) == 10
        assert broker.metric("penstock_telemetry_series") == 10
        assert broker.metric("penstock_telemetry_dropped_total") == 40


def test_librdkafka_pushes_its_metrics_by_itself(broker: BrokerProcess, topic: str) -> None:
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic(topic)
    with subscribed(broker, topic, metrics="*", interval_ms="200", match=f"client_id={topic}"):
        producer = driver.producer(**{"client.id": topic})
        producer.produce(topic, b"x")
        producer.flush(60)
        wait_until(lambda: shown_of(broker, topic), "librdkafka pushes")
        (labels,) = [dict(each) for each in shown(broker, "penstock_client_info") if dict(each)["client_id"] == topic]
        assert labels["client_software_name"] in ("librdkafka", "confluent-kafka-python")
        created = "penstock_client_producer_connection_creation_total"
        assert wait_until(lambda: labelled(broker, created, client_id=topic), "connections are counted")[0] >= 1
        del producer


def shown_of(broker: BrokerProcess, client_id: str) -> list[float]:
    return labelled(broker, "penstock_client_info", client_id=client_id)
