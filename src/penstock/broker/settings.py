"""The broker settings with their defaults, bounds and documentation, under Kafka's names where Kafka has one."""

from typing import Final

from penstock.cluster.settings import CLUSTER_SETTINGS, STARTUP_SETTINGS
from penstock.foundation.ids import GROUPS_TOPIC, INTERNAL_TOPICS, TRANSACTIONS_TOPIC
from penstock.foundation.proxies import TRUSTED_PROXIES
from penstock.foundation.settings import INT_MAX, Kind, Setting, Table, number, switch
from penstock.groups.settings import GROUP_SETTINGS
from penstock.log.setting_table import DAY_MS, LOG_SETTINGS
from penstock.replication.settings import REPLICATION_SETTINGS
from penstock.transactions.settings import TRANSACTION_SETTINGS

PAUSED: Final = "internal.topics.paused"
SQS_LIMITS: Final = "sqs.limits"
RELAXED: Final = "relaxed"
STRICT: Final = "strict"
SQS_ACCOUNT: Final = "sqs.account.id"
SQS_REGION: Final = "sqs.region"
SQS_REGIONS: Final = "sqs.regions"
SHARED: Final = "shared"
SEPARATE: Final = "separate"
METRICS_ALLOW: Final = "http.metrics.allow"
HEALTH_ALLOW: Final = "http.health.allow"
SETTING_PREFIXES: Final = {GROUPS_TOPIC: "offsets.topic.", TRANSACTIONS_TOPIC: "transaction.state.log."}
"""Prefix of the broker settings that define an internal topic, by topic name."""

OWN_SETTINGS: Final = (
    Setting(
        name=PAUSED,
        kind=Kind.LIST,
        default="",
        choices=tuple(sorted(INTERNAL_TOPICS)),
        doc="Internal topics whose coordinators are paused: clients get a retriable error. Managed by `penstock "
        "cluster repair-internal-topics`.",
    ),
    switch("auto.create.topics.enable", "true", "Whether a Metadata request creates topics that do not exist."),
    switch("delete.topic.enable", "true", "Whether topics may be deleted."),
    Setting(
        name=SQS_LIMITS,
        kind=Kind.STRING,
        default=RELAXED,
        choices=(RELAXED, STRICT),
        doc="`strict`: as with AWS, a queue cannot be purged twice within 60 seconds, nor created again within 60 "
        "seconds after it was deleted.",
    ),
    number("num.partitions", 1, 1, "Partitions of a topic that is created without a partition count."),
    number("max.partitions.per.topic", 10_000, 1, "The most partitions a topic may have."),
    number("default.replication.factor", 1, 1, "Replicas of a topic that is created without a replication factor."),
    number("fetch.max.bytes", 55 << 20, 1024, "The most bytes in the response to one fetch."),
    number("max.incremental.fetch.session.cache.slots", 1000, 0, "The most incremental fetch sessions (KIP-227)."),
    number("producer.id.expiration.ms", DAY_MS, 1, "How long the state of an idle producer id is retained."),
    number("log.retention.check.interval.ms", 300_000, 1, "How often segments are checked for retention.", Kind.LONG),
    number("log.initial.task.delay.ms", 30_000, 0, "Delay of the first retention check after startup.", Kind.LONG),
    number("log.cleaner.backoff.ms", 15_000, 1, "How often compaction checks for logs to compact.", Kind.LONG),
    Setting(
        name="telemetry.max.bytes",
        kind=Kind.INT,
        default=str(1 << 20),
        minimum=1,
        maximum=2_000_000,
        doc="The most bytes of metrics that a client may push at once (KIP-714), also once they are decompressed.",
    ),
    number(
        "client.telemetry.max.series",
        20_000,
        0,
        "The most series pushed by clients that this broker exposes at /metrics; more are dropped.",
    ),
    number(
        "schema.registry.bytes.max",
        256 << 20,
        1 << 20,
        "The most memory for the texts of all schemas of the registry; registrations above it are refused.",
        Kind.LONG,
    ),
    number(
        "schema.registry.topic.replication.factor",
        3,
        1,
        "Replicas of the schema registry's topic; fewer while there are fewer brokers.",
    ),
    number("max.connections.per.ip", INT_MAX, 0, "The most open Kafka connections of one host."),
    Setting(
        name="max.connections.per.ip.overrides",
        kind=Kind.STRING,
        default="",
        pattern=r"\s*([0-9A-Fa-f.:]+:[0-9]{1,9}(\s*,\s*[0-9A-Fa-f.:]+:[0-9]{1,9})*)?\s*",
        form="ADDRESS:COUNT,ADDRESS:COUNT",
        doc="Other limits than max.connections.per.ip for some addresses: ADDRESS:COUNT,ADDRESS:COUNT.",
    ),
    number("log.cleaner.keys.max", 2_000_000, 1000, "The most keys that one compaction pass holds in memory."),
)

STATIC_SETTINGS: Final = (
    number("socket.request.max.bytes", 100 << 20, 1024, "The largest request that is accepted."),
    number("max.connections", INT_MAX, 1, "The most open connections."),
    number("http.max.connections", 10_000, 1, "The most open HTTP connections; others get an error."),
    Setting(
        name=TRUSTED_PROXIES,
        kind=Kind.LIST,
        default="",
        doc="Addresses and networks of load balancers, whose X-Forwarded-For and X-Forwarded-Proto are believed.",
    ),
    Setting(
        name=METRICS_ALLOW,
        kind=Kind.LIST,
        default="",
        doc="Addresses and networks of the clients that may read /metrics, such as 10.0.0.0/8; others get 403. "
        "Behind http.trusted.proxies, the address in X-Forwarded-For counts. Empty: all clients may.",
    ),
    Setting(
        name=HEALTH_ALLOW,
        kind=Kind.LIST,
        default="",
        doc="Addresses and networks of the clients that may read /healthz, /readyz and /_localstack/health, as for "
        "http.metrics.allow. Empty: all clients may.",
    ),
    number("connections.max.idle.ms", 600_000, 1000, "Idle connections are closed after this time.", Kind.LONG),
    number(
        "queued.max.request.bytes", 512 << 20, 1 << 20, "The most bytes of partially received requests.", Kind.LONG
    ),
    number(
        "event.loop.monitor.interval.ms", 100, 1, "How often the stall monitor checks that the event loop responds."
    ),
    Setting(
        name=SQS_ACCOUNT,
        kind=Kind.STRING,
        default="000000000000",
        pattern="[0-9]{12}",
        form="an account id of 12 digits",
        doc="The account id in queue URLs and ARNs, unless the access key belongs to another account.",
    ),
    Setting(
        name=SQS_REGION,
        kind=Kind.STRING,
        default="us-east-1",
        pattern="[a-z0-9-]{1,32}",
        form="the name of a region such as eu-west-1",
        doc="The region in queue ARNs, for requests that are not signed for a region.",
    ),
    Setting(
        name=SQS_REGIONS,
        kind=Kind.STRING,
        default=SHARED,
        choices=(SHARED, SEPARATE),
        doc="`separate`: queues of the same name in different regions are different queues; the signature of a "
        "request selects the region.",
    ),
    *STARTUP_SETTINGS,
)
"""Broker settings that are read once, at process start."""


def _topic_defaults() -> list[Setting]:
    """Returns all topic settings that have a broker-level default, under their broker-level names."""
    found: dict[str, Setting] = {}
    for entry in LOG_SETTINGS:
        if entry.broker_name:
            found[entry.broker_name] = Setting(
                name=entry.broker_name,
                kind=entry.kind,
                default=entry.default,
                minimum=entry.minimum,
                maximum=entry.maximum,
                choices=entry.choices,
                doc=f"The default of {entry.name}. {entry.doc}",
            )
    return list(found.values())


_NO_EFFECT: Final = "Accepted, and without effect here: "
_IDLE_SETTINGS: Final = (
    number("background.threads", 10, 1, f"{_NO_EFFECT}a broker runs on one event loop."),
    number("num.io.threads", 8, 1, f"{_NO_EFFECT}a broker runs on one event loop."),
    number("num.network.threads", 3, 1, f"{_NO_EFFECT}a broker runs on one event loop."),
    number("num.recovery.threads.per.data.dir", 2, 1, f"{_NO_EFFECT}logs are opened on two threads."),
    number("num.replica.fetchers", 1, 1, f"{_NO_EFFECT}one connection fetches from each leader."),
    number("log.cleaner.threads", 1, 0, f"{_NO_EFFECT}one log is compacted at a time."),
    number(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        1,
        f"{_NO_EFFECT}log.cleaner.keys.max bounds the memory of compaction.",
        Kind.LONG,
    ),
    number("log.cleaner.io.buffer.size", 512 << 10, 0, f"{_NO_EFFECT}compaction reads batch by batch."),
    Setting(
        name="log.cleaner.io.buffer.load.factor",
        kind=Kind.DOUBLE,
        default="0.9",
        doc=f"{_NO_EFFECT}log.cleaner.keys.max bounds the memory of compaction.",
    ),
    Setting(
        name="log.cleaner.io.max.bytes.per.second",
        kind=Kind.DOUBLE,
        default="1.7976931348623157E308",
        doc=f"{_NO_EFFECT}compaction is not throttled.",
    ),
    number("max.connection.creation.rate", INT_MAX, 0, f"{_NO_EFFECT}new connections are not throttled."),
)
"""Kafka settings that operators change at runtime; accepted, but without effect in Penstock."""
WITHOUT_EFFECT: Final = frozenset(entry.name for entry in _IDLE_SETTINGS)

BROKER_SETTINGS: Final = Table(
    [
        *OWN_SETTINGS,
        *_IDLE_SETTINGS,
        *CLUSTER_SETTINGS,
        *REPLICATION_SETTINGS,
        *GROUP_SETTINGS,
        *TRANSACTION_SETTINGS,
        *STATIC_SETTINGS,
        *_topic_defaults(),
    ]
)
READ_ONLY: Final = frozenset(entry.name for entry in STATIC_SETTINGS)
