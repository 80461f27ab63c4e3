"""Subscriptions to client metrics: their settings, and which clients they match."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError, PolicyViolation
from penstock.telemetry.subscriptions import (
    INTERVAL_MS_DEFAULT,
    SUBSCRIPTIONS_MAX,
    Client,
    PushSettings,
    Subscription,
    check_subscription,
    push_settings_for,
)

CLIENT = Client("id", "orders-1", "librdkafka", "2.16.0", "10.0.0.7", "5000")


def subscription(**settings: str) -> Subscription:
    return Subscription.read({name.replace("_", "."): value for name, value in settings.items()})


@pytest.mark.parametrize(
    ("match", "found"),
    [
        ("", True),
        ("client_id=orders-.*", True),
        ("client_id=orders", False),
        ("client_software_name=librdkafka, client_software_version=2\\..*", True),
        ("client_software_name=librdkafka,client_id=bills", False),
        ("client_source_address = 10.*", True),
        ("client_source_port=5000,client_instance_id=id", True),
    ],
)
def test_a_subscription_is_for_clients_that_match_all_of_its_patterns(match: str, found: bool) -> None:
    assert subscription(match=match).is_for(CLIENT) is found


def test_unknown_client_attributes_match_nothing() -> None:
    unknown = CLIENT._replace(client_software_name=None)
    assert not subscription(match="client_software_name=.*").is_for(unknown)
    assert subscription(match="client_id=.*").is_for(unknown)


def test_a_client_gets_the_union_of_all_subscriptions_at_the_shortest_interval() -> None:
    mine = subscription(metrics="org.a.,org.b.", interval_ms="5000", match="client_id=orders.*")
    every = subscription(metrics="org.b.,org.c.", interval_ms="9000")
    other = subscription(metrics="org.d.", interval_ms="100", match="client_id=bills")
    wanted = push_settings_for(CLIENT, [mine, every, other])
    assert wanted == PushSettings(("org.a.", "org.b.", "org.c."), 5000)
    assert wanted == push_settings_for(CLIENT, [other, every, mine])
    assert [name for name in ("org.a.x", "org.d.x", "org.a") if wanted.includes(name)] == ["org.a.x"]


def test_without_subscriptions_nothing_is_wanted_and_with_a_star_everything() -> None:
    assert push_settings_for(CLIENT, []) == PushSettings((), INTERVAL_MS_DEFAULT)
    assert not push_settings_for(CLIENT, []).includes("a")
    everything = push_settings_for(CLIENT, [subscription(metrics="*"), subscription(metrics="org.a.")])
    assert everything.metrics == ("*",)
    assert everything.includes("a")


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"unknown": "1"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "-5"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"interval.ms": "9" * 5000}, ErrorCode.INVALID_CONFIG),
        ({"metrics": "a,a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id="}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG),
        ({"match": "colour=blue"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
        ({"metrics": "a" * 10_001}, ErrorCode.INVALID_CONFIG),
        ({"metrics": ",".join(map(str, range(501)))}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_wrong_settings_are_refused_with_kafkas_codes(settings: dict[str, str], code: ErrorCode) -> None:
    with pytest.raises(PenstockError) as refused:
        check_subscription("name", settings, 0)
    assert refused.value.code is code


def test_a_subscription_needs_a_name_and_there_may_be_only_so_many() -> None:
    check_subscription("name", {"metrics": "*"}, SUBSCRIPTIONS_MAX - 1)
    with pytest.raises(PenstockError, match="needs a name"):
        check_subscription("", {"metrics": "*"}, 0)
    with pytest.raises(PolicyViolation):
        check_subscription("name", {"metrics": "*"}, SUBSCRIPTIONS_MAX)
