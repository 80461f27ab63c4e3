"""Group configs: dynamic settings of a single group (KIP-848, KIP-932, KIP-1071). Pure.

Their resource type in DescribeConfigs and IncrementalAlterConfigs is GROUP.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.ids import INTERNAL_TOPICS
from penstock.foundation.settings import Kind, Setting, Table, switch

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
BY_DURATION: Final = "by_duration:"
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"

_DURATION: Final = re.compile(
    r"P(?=\d|T\d)(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?"
)
"""Matches an ISO 8601 duration without signs, as java.time.Duration parses it."""


def _inherited(name: str, default: int, doc: str, minimum: int = 1) -> Setting:
    """Returns the definition of a group config that defaults to the broker setting `group.` + `name`."""
    return Setting(
        name=name, kind=Kind.INT, default=str(default), minimum=minimum, doc=doc, broker_name=f"group.{name}"
    )


GROUP_CONFIGS: Final = Table(
    [
        _inherited("consumer.session.timeout.ms", 45_000, "Session timeout of members of consumer groups."),
        _inherited("consumer.heartbeat.interval.ms", 5000, "How often members of a consumer group send heartbeats."),
        _inherited("share.session.timeout.ms", 45_000, "Session timeout of members of share groups."),
        _inherited("share.heartbeat.interval.ms", 5000, "How often members of a share group send heartbeats."),
        _inherited(
            "share.record.lock.duration.ms",
            30_000,
            "How long an acquired message is locked for a member, unless the lock is renewed.",
        ),
        _inherited("share.delivery.count.limit", 5, "The most delivery attempts of a message."),
        _inherited(
            "share.partition.max.record.locks",
            2000,
            "The most messages of a partition that may be in flight in the group.",
        ),
        Setting(
            name="share.auto.offset.reset",
            kind=Kind.STRING,
            default=LATEST,
            doc="Where a share group starts in a partition: latest, earliest, or by_duration:PnDTnHnMn.nS ago.",
        ),
        Setting(
            name="share.isolation.level",
            kind=Kind.STRING,
            default=READ_UNCOMMITTED,
            choices=(READ_COMMITTED, READ_UNCOMMITTED),
            doc="Whether records of open and aborted transactions are delivered.",
        ),
        switch(
            "share.renew.acknowledge.enable", "true", "Whether members may renew the lock of a message (KIP-1222)."
        ),
        Setting(
            name=DEAD_LETTER_TOPIC,
            kind=Kind.STRING,
            default="",
            doc="Topic for messages that were rejected or delivered too often (KIP-1191); empty: none.",
        ),
        _inherited("streams.session.timeout.ms", 45_000, "Session timeout of members of streams groups."),
        _inherited("streams.heartbeat.interval.ms", 5000, "How often members of a streams group send heartbeats."),
        _inherited("streams.num.standby.replicas", 0, "Standby replicas of each stateful task.", minimum=0),
        _inherited(
            "streams.initial.rebalance.delay.ms",
            3000,
            "How long the group waits for more members before tasks are assigned.",
            minimum=0,
        ),
    ]
)

_BOUNDED: Final = (
    "share.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "streams.session.timeout.ms",
    "streams.heartbeat.interval.ms",
)
"""Names of group configs that have limits: `share.x` must be between the broker settings `group.share.min.x` and
`group.share.max.x`."""


def check_group_configs(overrides: Mapping[str, str], broker: Callable[[str], Any]) -> None:
    """Raises InvalidConfig if a config of `overrides` is invalid. `broker` returns parsed broker settings by name."""
    for name, text in overrides.items():
        GROUP_CONFIGS.get(name).parse(text)
    for name in _BOUNDED:
        kind, _, rest = name.partition(".")
        low_name, high_name = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
        low, high = broker(low_name), broker(high_name)
        if name in overrides and not low <= int(overrides[name]) <= high:
            raise InvalidConfig(
                f"{name}={overrides[name]} is not allowed; {low_name} is {low}, {high_name} is {high}"
            )
    if overrides.get(DEAD_LETTER_TOPIC) in INTERNAL_TOPICS:
        raise InvalidConfig(
            f"{DEAD_LETTER_TOPIC}={overrides[DEAD_LETTER_TOPIC]} is not allowed: that topic is internal, and only "
            "brokers write to it; create a topic for dead letters"
        )
    standbys, limit = overrides.get("streams.num.standby.replicas"), broker("group.streams.max.standby.replicas")
    if standbys is not None and int(standbys) > limit:
        raise InvalidConfig(
            f"streams.num.standby.replicas={standbys} is not allowed; group.streams.max.standby.replicas is {limit}"
        )
    reset_before_ms(overrides.get("share.auto.offset.reset", LATEST))
    for kind in ("consumer", "share", "streams"):
        session_ms = group_value(f"{kind}.session.timeout.ms", overrides, broker)
        interval_ms = group_value(f"{kind}.heartbeat.interval.ms", overrides, broker)
        is_own = f"{kind}.session.timeout.ms" in overrides or f"{kind}.heartbeat.interval.ms" in overrides
        if is_own and session_ms <= interval_ms:
            raise InvalidConfig(
                f"{kind}.session.timeout.ms={session_ms} is not allowed; "
                f"expected more than {kind}.heartbeat.interval.ms, which is {interval_ms}"
            )


def group_value(name: str, overrides: Mapping[str, str], broker: Callable[[str], Any]) -> Any:
    """Returns the effective value of a group config: from `overrides`, else from the broker, else the default."""
    setting = GROUP_CONFIGS.get(name)
    if name in overrides:
        return setting.parse(overrides[name])
    return setting.parse(setting.default) if setting.broker_name is None else broker(setting.broker_name)


def reset_before_ms(text: str) -> int | None:
    """Returns the duration, in ms, in a value of `share.auto.offset.reset`; None for `latest` and `earliest`.

    >>> reset_before_ms("by_duration:PT1H0.5S")
    3600500
    """
    if text in (LATEST, EARLIEST):
        return None
    found = _DURATION.fullmatch(text.removeprefix(BY_DURATION)) if text.startswith(BY_DURATION) else None
    if found is None:
        raise InvalidConfig(
            f"share.auto.offset.reset={text!r} is not allowed; expected {LATEST}, {EARLIEST} or {BY_DURATION}PT1H"
        )
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupConfig:
    """Parsed group configs that control delivery to the consumers of a share group."""

    record_lock_duration_ms: int
    delivery_count_limit: int
    partition_max_record_locks: int
    auto_offset_reset: str
    is_stable: bool
    """Whether the group reads committed records only (up to the last stable offset)."""
    may_renew: bool
    dead_letter_topic: str

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: Callable[[str], Any]) -> "ShareGroupConfig":
        def value(name: str) -> Any:
            return group_value(name, overrides, broker)

        return cls(
            record_lock_duration_ms=value("share.record.lock.duration.ms"),
            delivery_count_limit=value("share.delivery.count.limit"),
            partition_max_record_locks=value("share.partition.max.record.locks"),
            auto_offset_reset=value("share.auto.offset.reset"),
            is_stable=value("share.isolation.level") == READ_COMMITTED,
            may_renew=value("share.renew.acknowledge.enable"),
            dead_letter_topic=value(DEAD_LETTER_TOPIC),
        )
