"""Broker settings of classic, consumer, share and streams groups, with Kafka's names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.foundation.settings import INT_MAX, Kind, Setting, number
from penstock.groups.share.settings import SHARE_SETTINGS
from penstock.groups.streams.settings import STREAMS_SETTINGS

UNIFORM: Final = "uniform"
RANGE: Final = "range"

CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
MODERN_KINDS: Final = (CONSUMER, SHARE, STREAMS)
"""The kinds of group that Kafka calls modern: members only send heartbeats, and the broker assigns partitions."""

GROUP_SETTINGS: Final = (
    number("offsets.topic.num.partitions", 50, 1, "Partitions of the topic __consumer_offsets."),
    number("offsets.topic.replication.factor", 3, 1, "Replicas of __consumer_offsets, at most one per broker."),
    number("offsets.topic.segment.bytes", 100 << 20, 1024, "Segment size of __consumer_offsets."),
    number("offsets.retention.minutes", 10_080, 1, "How long the offsets of an empty group are kept."),
    number("offsets.retention.check.interval.ms", 600_000, 1, "How often expired offsets are removed.", Kind.LONG),
    number("offset.metadata.max.bytes", 4096, 0, "The largest metadata of a committed offset."),
    number("group.min.session.timeout.ms", 6000, 1, "The shortest session timeout of a classic group's member."),
    number("group.max.session.timeout.ms", 1_800_000, 1, "The longest session timeout of a classic group's member."),
    number("group.initial.rebalance.delay.ms", 3000, 0, "How long an empty classic group waits for more members."),
    number("group.max.size", INT_MAX, 1, "The most members a classic group may have."),
    number("group.consumer.session.timeout.ms", 45_000, 1, "Session timeout of members of consumer groups."),
    number("group.consumer.heartbeat.interval.ms", 5000, 1, "How often members of a consumer group send heartbeats."),
    number("group.consumer.max.size", INT_MAX, 1, "The most members a consumer group may have."),
    Setting(
        name="group.consumer.assignors",
        kind=Kind.LIST,
        default="uniform,range",
        choices=(UNIFORM, RANGE),
        minimum=1,
        doc="Server-side assignors; the first one is the default.",
    ),
    Setting(
        name="group.consumer.migration.policy",
        kind=Kind.STRING,
        default="bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Whether groups with members may be upgraded to the consumer protocol, and downgraded.",
    ),
    *SHARE_SETTINGS,
    *STREAMS_SETTINGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernGroupSettings:
    """Parsed settings that consumer, share and streams groups have in common."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    size_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Parsed settings of the group coordinator."""

    offsets_retention_ms: int
    offsets_check_interval_ms: int
    metadata_bytes_max: int
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    initial_rebalance_delay_ms: int
    size_max: int
    by_kind: Mapping[str, ModernGroupSettings]
    """Settings of consumer, share and streams groups, by kind of group (MODERN_KINDS)."""
    consumer_assignors: tuple[str, ...]
    may_upgrade: bool
    may_downgrade: bool
    streams_standby_replicas: int
    streams_initial_rebalance_delay_ms: int

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> "GroupSettings":
        """Returns the settings; `value` returns the parsed value of a broker setting by its name."""
        policy = value("group.consumer.migration.policy")
        return cls(
            offsets_retention_ms=value("offsets.retention.minutes") * 60_000,
            offsets_check_interval_ms=value("offsets.retention.check.interval.ms"),
            metadata_bytes_max=value("offset.metadata.max.bytes"),
            session_timeout_min_ms=value("group.min.session.timeout.ms"),
            session_timeout_max_ms=value("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=value("group.initial.rebalance.delay.ms"),
            size_max=value("group.max.size"),
            by_kind={
                kind: ModernGroupSettings(
                    session_timeout_ms=value(f"group.{kind}.session.timeout.ms"),
                    heartbeat_interval_ms=value(f"group.{kind}.heartbeat.interval.ms"),
                    size_max=value(f"group.{kind}.max.size"),
                )
                for kind in MODERN_KINDS
            },
            consumer_assignors=value("group.consumer.assignors"),
            may_upgrade=policy in ("bidirectional", "upgrade"),
            may_downgrade=policy in ("bidirectional", "downgrade"),
            streams_standby_replicas=value("group.streams.num.standby.replicas"),
            streams_initial_rebalance_delay_ms=value("group.streams.initial.rebalance.delay.ms"),
        )

    def of_group(self, overrides: Mapping[str, str]) -> "GroupSettings":
        """Returns the settings for a group, with its group configs `overrides` applied (see group_configs.py)."""

        def value(name: str, inherited: int) -> int:
            return int(overrides.get(name, inherited))

        return replace(
            self,
            by_kind={
                kind: replace(
                    own,
                    session_timeout_ms=value(f"{kind}.session.timeout.ms", own.session_timeout_ms),
                    heartbeat_interval_ms=value(f"{kind}.heartbeat.interval.ms", own.heartbeat_interval_ms),
                )
                for kind, own in self.by_kind.items()
            },
            streams_standby_replicas=value("streams.num.standby.replicas", self.streams_standby_replicas),
            streams_initial_rebalance_delay_ms=value(
                "streams.initial.rebalance.delay.ms", self.streams_initial_rebalance_delay_ms
            ),
        )
