"""Broker settings of share groups, with Kafka's names (KIP-932, KIP-1240)."""

from typing import Final

from penstock.foundation.settings import Kind, Setting

HOUR_MS: Final = 3_600_000


def _bounded(name: str, default: int, minimum: int, maximum: int, doc: str) -> Setting:
    return Setting(name=name, kind=Kind.INT, default=str(default), minimum=minimum, maximum=maximum, doc=doc)


SHARE_SETTINGS: Final = (
    _bounded("group.share.session.timeout.ms", 45_000, 1, HOUR_MS, "Session timeout of members of share groups."),
    _bounded("group.share.min.session.timeout.ms", 45_000, 1, HOUR_MS, "Minimum of the group config."),
    _bounded("group.share.max.session.timeout.ms", 60_000, 1, HOUR_MS, "Maximum of the group config."),
    _bounded(
        "group.share.heartbeat.interval.ms", 5000, 1, HOUR_MS, "How often members of a share group send heartbeats."
    ),
    _bounded("group.share.min.heartbeat.interval.ms", 5000, 1, HOUR_MS, "Minimum of the group config."),
    _bounded("group.share.max.heartbeat.interval.ms", 15_000, 1, HOUR_MS, "Maximum of the group config."),
    _bounded("group.share.max.size", 200, 1, 1000, "The most members a share group may have."),
    _bounded(
        "group.share.record.lock.duration.ms",
        30_000,
        1000,
        HOUR_MS,
        "How long an acquired message is locked for a member, unless the lock is renewed.",
    ),
    _bounded("group.share.min.record.lock.duration.ms", 15_000, 1000, 30_000, "Minimum of the group config."),
    _bounded("group.share.max.record.lock.duration.ms", 60_000, 30_000, HOUR_MS, "Maximum of the group config."),
    _bounded("group.share.delivery.count.limit", 5, 2, 10, "The most delivery attempts of a message."),
    _bounded("group.share.min.delivery.count.limit", 2, 2, 5, "Minimum of the group config."),
    _bounded("group.share.max.delivery.count.limit", 10, 5, 25, "Maximum of the group config."),
    _bounded(
        "group.share.partition.max.record.locks",
        2000,
        100,
        10_000,
        "The most messages of a partition that may be in flight in a share group.",
    ),
    _bounded("group.share.min.partition.max.record.locks", 100, 100, 2000, "Minimum of the group config."),
    _bounded("group.share.max.partition.max.record.locks", 4000, 2000, 10_000, "Maximum of the group config."),
    _bounded("group.share.max.share.sessions", 2000, 1, 1_000_000, "The most share sessions of a broker."),
)
