"""The settings of a broker's place in the cluster, and of the controller, by Kafka's names where Kafka has one."""

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
        doc="`*` for a broker that is to get no replicas any more, as one that is being drained (KIP-1066). Set it "
        "while the broker runs: the others do not see its file.",
    ),
    switch("auto.leader.rebalance.enable", "true", "Whether partitions go back to their preferred leaders."),
    number(
        "leader.imbalance.check.interval.seconds",
        300,
        1,
        "How long a preferred leader must have been in sync before it leads again.",
        Kind.LONG,
    ),
)

PLACE_SETTINGS: Final = (
    Setting(
        name="broker.rack",
        kind=Kind.STRING,
        default="",
        doc="The rack, or zone, that this broker stands in: no two replicas share one while another has none.",
    ),
    Setting(
        name="broker.host.id",
        kind=Kind.STRING,
        default="",
        doc="The machine that this broker runs on, if it is not the one its host name tells.",
    ),
    Setting(
        name=ADVERTISED_HTTP,
        kind=Kind.STRING,
        default="",
        doc="Where clients reach queues, if it is not where this broker listens: HOST:PORT, or the URL of what "
        "stands in front of all brokers.",
    ),
    Setting(name=NODE_ID, kind=Kind.INT, default="0", doc="The number of this broker (--node-id)."),
    Setting(name=BROKER_ID, kind=Kind.INT, default="0", doc="The number of this broker, under Kafka's older name."),
    Setting(name=LISTENERS, kind=Kind.LIST, default="", doc="Where this broker listens (--listen)."),
    Setting(
        name=ADVERTISED_LISTENERS,
        kind=Kind.LIST,
        default="",
        doc="The address that clients and other brokers are told (--advertise).",
    ),
    Setting(name=LOG_DIRS, kind=Kind.LIST, default="", doc="Where everything is kept (--data-dir)."),
)
"""Read once, when the process starts."""
