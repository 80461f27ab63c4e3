"""Broker settings of the cluster: node id, listeners, rack, leader rebalancing; with Kafka's names if any."""

from typing import Final

from penstock.foundation.access_key_settings import ACCESS_KEY_SETTINGS
from penstock.foundation.authorizer_settings import AUTHORIZER_SETTINGS
from penstock.foundation.delegation_settings import DELEGATION_SETTINGS
from penstock.foundation.sasl_settings import SASL_SETTINGS
from penstock.foundation.settings import Kind, Setting, number, switch
from penstock.foundation.tls_settings import TLS_SETTINGS

NODE_ID: Final = "node.id"
BROKER_ID: Final = "broker.id"
LISTENERS: Final = "listeners"
ADVERTISED_LISTENERS: Final = "advertised.listeners"
PROTOCOL_MAP: Final = "listener.security.protocol.map"
INTER_BROKER_NAME: Final = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
CONTROLLER_NAMES: Final = "controller.listener.names"
LOG_DIRS: Final = "log.dirs"
CORDONED: Final = "cordoned.log.dirs"
HTTP_PROTOCOL: Final = "http.security.protocol"
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
    Setting(
        name=LISTENERS,
        kind=Kind.LIST,
        default="",
        doc="The listeners of this broker (--listen, --listener): NAME://HOST:PORT. No host means all addresses.",
    ),
    Setting(
        name=ADVERTISED_LISTENERS,
        kind=Kind.LIST,
        default="",
        doc="The addresses of the listeners for clients and other brokers (--advertise): NAME://HOST:PORT. A "
        "listener that is missing here is not advertised. Port 0 is the port that the listener binds.",
    ),
    Setting(
        name=PROTOCOL_MAP,
        kind=Kind.LIST,
        default="PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        doc="The security protocol of each listener: NAME:PROTOCOL.",
    ),
    Setting(
        name=INTER_BROKER_NAME,
        kind=Kind.STRING,
        default="",
        doc="The listener on which brokers connect to each other. The default is the only listener, or PLAINTEXT.",
    ),
    Setting(
        name=INTER_BROKER_PROTOCOL,
        kind=Kind.STRING,
        default="",
        doc="The inter-broker listener, by its protocol; not together with inter.broker.listener.name.",
    ),
    Setting(
        name=HTTP_PROTOCOL,
        kind=Kind.STRING,
        default="PLAINTEXT",
        choices=("PLAINTEXT", "SSL"),
        doc="The protocol of the HTTP listener: `SSL` for HTTPS. `listener.name.http.ssl.…` are its TLS settings.",
    ),
    Setting(name=LOG_DIRS, kind=Kind.LIST, default="", doc="The data folder (--data-dir)."),
    *TLS_SETTINGS,
    *SASL_SETTINGS,
    *DELEGATION_SETTINGS,
    *ACCESS_KEY_SETTINGS,
    *AUTHORIZER_SETTINGS,
)
"""Broker settings that are read only once, when the process starts."""
