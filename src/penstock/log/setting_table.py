"""The table of topic settings: names as in Kafka, types, defaults, bounds and documentation."""

from typing import Final

from penstock.foundation.delays import DELAYED_MESSAGES_SETTING
from penstock.foundation.settings import INT_MAX, LONG_MAX, Kind, Setting, Table

DAY_MS: Final = 86_400_000
DELAYED_MESSAGES: Final = DELAYED_MESSAGES_SETTING
DELIVERY_DELAY_MS: Final = "delivery.delay.ms"
DELIVERY_DELAY_MAX_MS: Final = 365 * DAY_MS
MAX_PRODUCER_IDS: Final = "max.producer.ids"
PRODUCER_IDS_LIMIT: Final = 100_000
"""Maximum value of max.producer.ids: encoding a snapshot of this many producers takes 50 ms on a thread."""
MESSAGE_BYTES_DEFAULT: Final = 1_048_588
LEADER_THROTTLED: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED: Final = "follower.replication.throttled.replicas"
REMOTE_STORAGE: Final = "remote.storage.enable"
WRITE_ACCESS: Final = "write.access"
CLIENTS: Final = "clients"
BROKERS: Final = "brokers"
SCHEMA_VALIDATION: Final = "schema.validation"
VALUE_SCHEMA_VALIDATION: Final = "confluent.value.schema.validation"
KEY_SCHEMA_VALIDATION: Final = "confluent.key.schema.validation"
VALUE_SUBJECT_NAMES: Final = "confluent.value.subject.name.strategy"
KEY_SUBJECT_NAMES: Final = "confluent.key.subject.name.strategy"
_STRATEGIES: Final = "io.confluent.kafka.serializers.subject."
TOPIC_NAME: Final = f"{_STRATEGIES}TopicNameStrategy"
RECORD_NAME: Final = f"{_STRATEGIES}RecordNameStrategy"
TOPIC_RECORD_NAME: Final = f"{_STRATEGIES}TopicRecordNameStrategy"
_NO_EFFECT: Final = "Accepted, and without effect here: "


def _long(name: str, default: int, minimum: int, doc: str) -> Setting:
    broker_name = name if name.startswith("message.") else f"log.{name}"
    return Setting(
        name=name,
        kind=Kind.LONG,
        default=str(default),
        minimum=minimum,
        doc=doc,
        broker_name={
            "max.message.bytes": "message.max.bytes",
            "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
            "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
            "delete.retention.ms": "log.cleaner.delete.retention.ms",
            "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
            "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
            "file.delete.delay.ms": "log.segment.delete.delay.ms",
            "flush.messages": "log.flush.interval.messages",
            "flush.ms": "log.flush.interval.ms",
            "segment.ms": "log.roll.ms",
            "segment.jitter.ms": "log.roll.jitter.ms",
        }.get(name, broker_name),
    )


def _int(name: str, default: int, minimum: int, doc: str, maximum: int = INT_MAX, broker: str = "") -> Setting:
    return Setting(
        name=name,
        kind=Kind.INT,
        default=str(default),
        minimum=minimum,
        maximum=maximum,
        doc=doc,
        broker_name=broker or None,
    )


def _validation(name: str, doc: str) -> Setting:
    return Setting(name=name, kind=Kind.BOOLEAN, default="false", doc=doc)


def _subject_names(name: str, part: str) -> Setting:
    return Setting(
        name=name,
        kind=Kind.STRING,
        default=TOPIC_NAME,
        choices=(TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME),
        doc=f"Where the schema of a {part} must be registered if it is validated: under the subject TOPIC-{part}, "
        "under any subject, or under one that starts with the topic's name and a hyphen.",
    )


LOG_SETTINGS: Final = Table(
    [
        Setting(
            name="cleanup.policy",
            kind=Kind.LIST,
            default="delete",
            choices=("delete", "compact"),
            broker_name="log.cleanup.policy",
            doc="What happens to old segments: deleted, compacted to the last record of each key, or both.",
        ),
        Setting(
            name="compression.type",
            kind=Kind.STRING,
            default="producer",
            choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            broker_name="compression.type",
            doc="The codec that batches are stored in; `producer` stores them as sent.",
        ),
        _int(
            "compression.gzip.level",
            -1,
            -1,
            "Level for gzip; -1 is the library's own.",
            9,
            "compression.gzip.level",
        ),
        _int("compression.lz4.level", 9, 1, "Level for lz4.", 17, "compression.lz4.level"),
        _int("compression.zstd.level", 3, -131072, "Level for zstd.", 22, "compression.zstd.level"),
        Setting(
            name=DELAYED_MESSAGES,
            kind=Kind.BOOLEAN,
            default="false",
            doc="Whether records with a delivery time in a header are held back until then. Once it is on, it stays "
            "on.",
        ),
        _validation(KEY_SCHEMA_VALIDATION, "As schema.validation, for keys."),
        _subject_names(KEY_SUBJECT_NAMES, "key"),
        _validation(VALUE_SCHEMA_VALIDATION, "The same as schema.validation, under Confluent's name."),
        _subject_names(VALUE_SUBJECT_NAMES, "value"),
        _int(
            "decompressed.batch.max.bytes",
            16 << 20,
            1024,
            "The largest batch, decompressed, that the broker decompresses: for compacted topics, delayed messages, "
            "schema validation, recompression, views and queues. Consumers may read larger ones.",
            broker="log.decompressed.batch.max.bytes",
        ),
        _long("delete.retention.ms", DAY_MS, 0, "How long a compacted topic keeps tombstones."),
        Setting(
            name=DELIVERY_DELAY_MS,
            kind=Kind.LONG,
            default="0",
            minimum=0,
            maximum=DELIVERY_DELAY_MAX_MS,
            doc="How long every record is held back from consumers after it was appended.",
        ),
        _long("file.delete.delay.ms", 60_000, 0, f"{_NO_EFFECT}segments are removed when no reader needs them."),
        Setting(
            name=FOLLOWER_THROTTLED,
            kind=Kind.LIST,
            default="",
            doc="Replicas, as partition:broker, that fetch no faster than follower.replication.throttled.rate; * "
            "means all.",
        ),
        Setting(
            name="flush",
            kind=Kind.STRING,
            default="os",
            choices=("os", "group"),
            broker_name="log.flush",
            doc="`os`: acknowledged writes survive a killed process. `group`: they are fsynced first, many at a "
            "time, and survive power loss.",
        ),
        _long(
            "flush.messages",
            LONG_MAX,
            1,
            "If set: messages are fsynced before they are acknowledged (`flush=group`), so that no more are lost "
            "than this allows.",
        ),
        _long(
            "flush.ms", LONG_MAX, 0, "As flush.messages: if set, messages are fsynced before they are acknowledged."
        ),
        _int(
            "index.interval.bytes",
            4096,
            0,
            "Bytes of log between two entries of an index.",
            broker="log.index.interval.bytes",
        ),
        Setting(
            name=LEADER_THROTTLED,
            kind=Kind.LIST,
            default="",
            doc="Replicas, as partition:broker, that send to followers no faster than "
            "leader.replication.throttled.rate; * means all.",
        ),
        _long("local.retention.bytes", -2, -2, f"{_NO_EFFECT}there is no tiered storage."),
        _long("local.retention.ms", -2, -2, f"{_NO_EFFECT}there is no tiered storage."),
        _long("max.compaction.lag.ms", LONG_MAX, 1, "The longest time a record may wait for compaction."),
        _int(
            "max.message.bytes",
            MESSAGE_BYTES_DEFAULT,
            0,
            "The largest record batch that is accepted.",
            broker="message.max.bytes",
        ),
        _int(
            MAX_PRODUCER_IDS,
            10_000,
            1,
            "Producer ids whose sequences a partition remembers; above it, those idle longest are forgotten.",
            PRODUCER_IDS_LIMIT,
            "log.max.producer.ids",
        ),
        _long("message.timestamp.after.max.ms", 3_600_000, 0, "How far ahead of the broker a timestamp may be."),
        _long("message.timestamp.before.max.ms", LONG_MAX, 0, "How far behind the broker a timestamp may be."),
        Setting(
            name="message.timestamp.type",
            kind=Kind.STRING,
            default="CreateTime",
            choices=("CreateTime", "LogAppendTime"),
            broker_name="log.message.timestamp.type",
            doc="Whether records keep the producer's time or get the broker's.",
        ),
        Setting(
            name="min.cleanable.dirty.ratio",
            kind=Kind.DOUBLE,
            default="0.5",
            minimum=0,
            maximum=1,
            broker_name="log.cleaner.min.cleanable.ratio",
            doc="The share of a compacted log that must be new before it is compacted again.",
        ),
        _long("min.compaction.lag.ms", 0, 0, "The shortest time before a record may be compacted."),
        _int(
            "min.insync.replicas",
            1,
            1,
            "Replicas that must have a record before acks=all is acknowledged.",
            broker="min.insync.replicas",
        ),
        Setting(
            name="preallocate",
            kind=Kind.BOOLEAN,
            default="false",
            broker_name="log.preallocate",
            doc=f"{_NO_EFFECT}files of segments grow as they are written.",
        ),
        Setting(
            name="remote.log.copy.disable",
            kind=Kind.BOOLEAN,
            default="false",
            doc=f"{_NO_EFFECT}there is no tiered storage.",
        ),
        Setting(
            name="remote.log.delete.on.disable",
            kind=Kind.BOOLEAN,
            default="false",
            doc=f"{_NO_EFFECT}there is no tiered storage.",
        ),
        Setting(
            name=REMOTE_STORAGE,
            kind=Kind.BOOLEAN,
            default="false",
            doc="Only `false`: there is no tiered storage.",
        ),
        _long("retention.bytes", -1, -1, "Bytes a partition keeps; -1 sets no limit."),
        _long("retention.ms", 7 * DAY_MS, -1, "How long records are kept; -1 sets no limit."),
        _validation(
            SCHEMA_VALIDATION,
            "Whether records are refused whose value does not start with the id of a schema in the registry. Null "
            "values are accepted.",
        ),
        _int(
            "segment.bytes",
            1 << 30,
            1024,
            "The size at which a new segment is started.",
            broker="log.segment.bytes",
        ),
        _int(
            "segment.index.bytes",
            10 << 20,
            4,
            f"{_NO_EFFECT}an index takes what it needs.",
            broker="log.index.size.max.bytes",
        ),
        _long("segment.ms", 7 * DAY_MS, 1, "The age at which a new segment is started."),
        _long(
            "segment.jitter.ms",
            0,
            0,
            "Up to this much is taken off segment.ms, so that not all roll at once.",
        ),
        Setting(
            name="storage",
            kind=Kind.STRING,
            default="disk",
            choices=("disk", "memory"),
            doc="`memory`: bounded, fast, and lost when every replica has restarted. Fixed when a topic is created.",
        ),
        Setting(
            name="unclean.leader.election.enable",
            kind=Kind.BOOLEAN,
            default="false",
            broker_name="unclean.leader.election.enable",
            doc="Whether a replica outside the ISR may be elected leader if no other can: records it lacks are lost.",
        ),
        Setting(
            name=WRITE_ACCESS,
            kind=Kind.STRING,
            default=CLIENTS,
            choices=(CLIENTS, BROKERS),
            doc="`brokers`: only the brokers' schema registry writes to the topic; possible for `_schemas` only. "
            "`clients`: clients may write to it, such as another schema registry.",
        ),
    ]
)
