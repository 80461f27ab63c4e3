"""Broker settings of streams groups, with Kafka's names (KIP-1071)."""

from typing import Final

from penstock.foundation.settings import INT_MAX, number

STREAMS_SETTINGS: Final = (
    number("group.streams.session.timeout.ms", 45_000, 1, "Session timeout of members of streams groups."),
    number("group.streams.min.session.timeout.ms", 45_000, 1, "Minimum of the group config."),
    number("group.streams.max.session.timeout.ms", 60_000, 1, "Maximum of the group config."),
    number("group.streams.heartbeat.interval.ms", 5000, 1, "How often members of a streams group send heartbeats."),
    number("group.streams.min.heartbeat.interval.ms", 5000, 1, "Minimum of the group config."),
    number("group.streams.max.heartbeat.interval.ms", 15_000, 1, "Maximum of the group config."),
    number("group.streams.max.size", INT_MAX, 1, "The most members a streams group may have."),
    number("group.streams.num.standby.replicas", 0, 0, "Standby replicas of each stateful task."),
    number("group.streams.max.standby.replicas", 2, 0, "Maximum of the group config."),
    number(
        "group.streams.initial.rebalance.delay.ms",
        3000,
        0,
        "How long a new streams group waits for more members before tasks are assigned.",
    ),
)
