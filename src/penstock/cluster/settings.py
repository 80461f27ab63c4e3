"""Broker settings of the cluster: node id, listeners, rack, leader rebalancing; with Kafka's names if any."""

from typing import Final

from penstock.foundation.settings import Kind, Setting, number, switch

NODE_ID: Final = "node.id"
BROKER_ID: Final = "broker.id"
LISTENERS: Final = "listeners"
ADVERTISED_LISTENERS: Final = "advertised.listeners"
LOG_DIRS: Final = "log.dirs"
CORDONED: Final = "cordoned.log.dirs"
ADVERTISED_HTTP: Final = "advertised.http"

CLUSTER_SETTINGS: Final = (
    Setting(
        name=CORDONED,
        kind=Kind.LIST,
        default="",
        choices=("*",),
        doc="`*` for a broker that must get no new replicas, like one that is being drained (KIP-1066). Set it "
        "dynamically: other brokers do not read this broker's settings file.",
    ),
    switch("auto.leader.rebalance.enable", "true", "Whether preferred leaders are elected automatically."),
    number(
        "leader.imbalance.check.interval.seconds",
        300,
        1,
        "How long a preferred leader must be in sync before it is elected again.",
        Kind.LONG,
    ),
)

STARTUP_SETTINGS: Final = (
    Setting(
        name="broker.rack",
        kind=Kind.STRING,
        default="",
        doc="The rack or zone of this broker: replicas of a partition are spread over racks.",
    ),
    Setting(
        name="broker.host.id",
        kind=Kind.STRING,
        default="",
        doc="The machine that this broker runs on, if it differs from its host name.",
    ),
    Setting(
        name=ADVERTISED_HTTP,
        kind=Kind.STRING,
        default="",
        doc="The address of queues for clients, if it differs from the HTTP listener: HOST:PORT, or the URL of a "
        "load balancer in front of all brokers.",
    ),
    Setting(name=NODE_ID, kind=Kind.INT, default="0", doc="The id of this broker (--node-id)."),
    Setting(name=BROKER_ID, kind=Kind.INT, default="0", doc="The id of this broker, by Kafka's older name."),
    Setting(name=LISTENERS, kind=Kind.LIST, default="", doc="The listen address of this broker (--listen)."),
    Setting(
        name=ADVERTISED_LISTENERS,
        kind=Kind.LIST,
        default="",
        doc="The address for clients and other brokers (--advertise).",
    ),
    Setting(name=LOG_DIRS, kind=Kind.LIST, default="", doc="The data folder (--data-dir)."),
)
"""Broker settings that are read only once, when the process starts."""
