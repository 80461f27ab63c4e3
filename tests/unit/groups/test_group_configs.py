"""Settings of single groups."""

from typing import Any

import pytest

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import Table
from penstock.groups.group_configs import (
    GROUP_CONFIGS,
    ShareGroupConfig,
    check_group_configs,
    group_value,
    reset_before_ms,
)
from penstock.groups.settings import GROUP_SETTINGS

from .coordinator_harness import settings_of

BROKER = Table(GROUP_SETTINGS).parse({})


def _broker(**changes: Any) -> Any:
    return {**BROKER, **{name.replace("_", "."): value for name, value in changes.items()}}.__getitem__


def test_without_any_a_group_has_what_kafka_has() -> None:
    found = ShareGroupConfig.of({}, _broker())
    assert found == ShareGroupConfig(
        record_lock_duration_ms=30_000,
        delivery_count_limit=5,
        partition_max_record_locks=2000,
        auto_offset_reset="latest",
        is_stable=False,
        may_renew=True,
        dead_letter_topic="",
    )
    for setting in GROUP_CONFIGS:
        assert setting.broker_name is None or str(BROKER[setting.broker_name]) == setting.default


def test_its_own_come_before_the_brokers() -> None:
    broker = _broker(group_share_record_lock_duration_ms=20_000)
    assert group_value("share.record.lock.duration.ms", {}, broker) == 20_000
    assert group_value("share.record.lock.duration.ms", {"share.record.lock.duration.ms": "16000"}, broker) == 16_000
    assert ShareGroupConfig.of({"share.isolation.level": "read_committed"}, broker).is_stable


def test_timeouts_of_members_are_a_groups_own() -> None:
    own = settings_of().of_group({"consumer.session.timeout.ms": "9000", "share.heartbeat.interval.ms": "6000"})
    assert (own.by_kind["consumer"].session_timeout_ms, own.by_kind["share"].heartbeat_interval_ms) == (9000, 6000)
    assert settings_of().of_group({"share.isolation.level": "read_committed"}) == settings_of()


@pytest.mark.parametrize(
    "wrong",
    [
        {"share.colour": "red"},
        {"share.isolation.level": "serializable"},
        {"share.renew.acknowledge.enable": "maybe"},
        {"share.session.timeout.ms": "44999"},
        {"share.session.timeout.ms": "60001"},
        {"share.heartbeat.interval.ms": "4999"},
        {"share.record.lock.duration.ms": "14999"},
        {"share.record.lock.duration.ms": "60001"},
        {"share.delivery.count.limit": "1"},
        {"share.delivery.count.limit": "11"},
        {"share.partition.max.record.locks": "99"},
        {"share.partition.max.record.locks": "4001"},
        {"share.auto.offset.reset": "sometime"},
        {"share.auto.offset.reset": "by_duration:1h"},
        {"share.auto.offset.reset": "by_duration:P"},
        {"consumer.session.timeout.ms": "5000", "consumer.heartbeat.interval.ms": "5000"},
    ],
)
def test_invalid_values_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        check_group_configs(wrong, _broker())


def test_valid_values_are_accepted() -> None:
    check_group_configs(
        {
            "share.session.timeout.ms": "45000",
            "share.heartbeat.interval.ms": "15000",
            "share.record.lock.duration.ms": "15000",
            "share.delivery.count.limit": "10",
            "share.partition.max.record.locks": "100",
            "share.auto.offset.reset": "by_duration:PT1H",
            "share.isolation.level": "read_committed",
            "share.renew.acknowledge.enable": "false",
            "errors.deadletterqueue.topic.name": "dlq.jobs",
        },
        _broker(),
    )
    check_group_configs(
        {"share.record.lock.duration.ms": "1000"}, _broker(group_share_min_record_lock_duration_ms=1000)
    )


@pytest.mark.parametrize(
    ("text", "before_ms"),
    [
        ("latest", None),
        ("earliest", None),
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT0.001S", 1),
    ],
)
def test_a_group_begins_so_long_ago(text: str, before_ms: int | None) -> None:
    assert reset_before_ms(text) == before_ms
