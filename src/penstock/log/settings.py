"""The topic settings that the log obeys, under the names that Kafka users know."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import INT_MAX, LONG_MAX, Kind, Setting, Table

DAY_MS: Final = 86_400_000
MEMORY_RETENTION_BYTES: Final = 64 << 20
"""What a memory topic keeps per partition where its retention.bytes sets no bound."""
COMPANION_SEGMENT_BYTES_MAX: Final = 128 << 20
"""Of messages that wait: what is delivered of the last segment is not reclaimed."""
DELAYED_MESSAGES: Final = "delayed.messages"
DELIVERY_DELAY_MS: Final = "delivery.delay.ms"
DELIVERY_DELAY_MAX_MS: Final = 365 * DAY_MS
MAX_PRODUCER_IDS: Final = "max.producer.ids"
PRODUCER_IDS_LIMIT: Final = 100_000
"""The highest value that max.producer.ids may have: a snapshot of so many takes a thread 50 ms."""
MESSAGE_BYTES_DEFAULT: Final = 1_048_588
MEMORY_SEGMENTS: Final = 8
"""A memory log is cut into about this many segments, so that dropping the oldest frees a small part."""


class Storage(StrEnum):
    DISK = "disk"
    MEMORY = "memory"


class Flush(StrEnum):
    OS = "os"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedReplicas:
    """The replicas of a topic that a setting names: all, or some as `partition:broker`.

    >>> (3, 1) in NamedReplicas.parse("leader.replication.throttled.replicas", ("3:1", "3:2"))
    True
    """

    is_all: bool = False
    pairs: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def parse(cls, name: str, parts: tuple[str, ...]) -> "NamedReplicas":
        if parts == ("*",):
            return cls(is_all=True)
        pairs = set()
        for part in parts:
            number, _, node = part.partition(":")
            if not (number.isdecimal() and node.isdecimal() and part.isascii()):
                raise InvalidConfig(
                    f"{name}={','.join(parts)!r} is not allowed; expected * or a list of partition:broker"
                )
            pairs.add((int(number), int(node)))
        return cls(pairs=frozenset(pairs))

    def __contains__(self, replica: tuple[int, int]) -> bool:
        return self.is_all or replica in self.pairs


LEADER_THROTTLED: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED: Final = "follower.replication.throttled.replicas"


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


LOG_SETTINGS: Final = Table(
    [
        Setting(
            name="cleanup.policy",
            kind=Kind.LIST,
            default="delete",
            choices=("delete", "compact"),
            broker_name="log.cleanup.policy",
            doc="What becomes of old segments: deleted, compacted to the last record of each key, or both.",
        ),
        Setting(
            name="compression.type",
            kind=Kind.STRING,
            default="producer",
            choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            broker_name="compression.type",
            doc="The codec that batches are kept in; `producer` keeps what was sent.",
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
            doc="Whether records with a header that says when they are delivered are held back until then. Once it "
            "is on, it stays on.",
        ),
        _int(
            "decompressed.batch.max.bytes",
            16 << 20,
            1024,
            "The largest batch, decompressed, that the broker itself opens: for compacted topics, delayed messages, "
            "recompression, views and queues. Consumers may read larger ones.",
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
        Setting(
            name=FOLLOWER_THROTTLED,
            kind=Kind.LIST,
            default="",
            doc="Replicas, as partition:broker, that catch up no faster than follower.replication.throttled.rate; * "
            "stands for all.",
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
            doc="Replicas, as partition:broker, that as leaders let others catch up no faster than "
            "leader.replication.throttled.rate; * stands for all.",
        ),
        _long("max.compaction.lag.ms", LONG_MAX, 1, "The longest time a record may wait for compaction."),
        _int(
            "max.message.bytes",
            MESSAGE_BYTES_DEFAULT,
            0,
            "The largest record batch that is taken.",
            broker="message.max.bytes",
        ),
        _int(
            MAX_PRODUCER_IDS,
            10_000,
            1,
            "Producer ids that a partition remembers sequences of; past it those that were silent longest are "
            "forgotten.",
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
        _long("min.compaction.lag.ms", 0, 0, "The shortest time a record stays as it was sent."),
        _int(
            "min.insync.replicas",
            1,
            1,
            "Replicas that must have a message before acks=all is answered.",
            broker="min.insync.replicas",
        ),
        _long("retention.bytes", -1, -1, "Bytes a partition keeps; -1 sets no bound."),
        _long("retention.ms", 7 * DAY_MS, -1, "How long records are kept; -1 is for ever."),
        _int(
            "segment.bytes",
            1 << 30,
            1024,
            "The size at which a new segment is begun.",
            broker="log.segment.bytes",
        ),
        _long("segment.ms", 7 * DAY_MS, 1, "The age at which a new segment is begun."),
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
            doc="`memory`: bounded, fast, and gone when every replica has restarted. Fixed when a topic is made.",
        ),
        Setting(
            name="unclean.leader.election.enable",
            kind=Kind.BOOLEAN,
            default="false",
            broker_name="unclean.leader.election.enable",
            doc="Whether a replica that is not in sync may lead when no other can: what it lacks is lost then.",
        ),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The settings of one log, parsed. `LogSettings.of({})` has the defaults."""

    storage: Storage
    flush: Flush
    compacted: bool
    deleted: bool
    compression_type: str
    compression_levels: Mapping[str, int]
    decompressed_bytes_max: int
    """Of a batch that the broker opens."""
    delete_retention_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    max_producer_ids: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    log_append_time: bool
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    leader_throttled: NamedReplicas
    follower_throttled: NamedReplicas
    unclean: bool
    delayed: bool
    """Whether records may say when they are delivered."""
    delivery_delay_ms: int

    def for_companion(self) -> "LogSettings":
        """Of a log beside this one, which brokers alone write to: as safe, and nothing in it grows old."""
        return replace(
            self,
            compacted=self.storage is Storage.DISK,
            deleted=False,
            compression_type="producer",
            max_message_bytes=INT_MAX,
            min_compaction_lag_ms=0,
            log_append_time=False,
            delayed=False,
            delivery_delay_ms=0,
            # What was delivered is told by a record of its own: nobody needs to see that its message is gone.
            delete_retention_ms=0 if self.delayed else self.delete_retention_ms,
            segment_bytes=min(self.segment_bytes, COMPANION_SEGMENT_BYTES_MAX)
            if self.delayed
            else self.segment_bytes,
        )

    def for_internal_topic(self) -> "LogSettings":
        """Of a topic that coordinators keep their state in: nothing in it grows old, whatever its settings say."""
        return replace(
            self,
            compacted=self.storage is Storage.DISK,
            deleted=self.storage is Storage.MEMORY,
            max_message_bytes=max(self.max_message_bytes, MESSAGE_BYTES_DEFAULT),
            delivery_delay_ms=0,
        )

    @classmethod
    def of(cls, values: Mapping[str, str], *, running: bool = False) -> "LogSettings":
        """Parse and check the values that are given; the rest are defaults.

        `running`: the topic is there, and a broker's default may have changed under it: what does not go together is
        settled then, not refused.
        """
        parsed = LOG_SETTINGS.parse({name: text for name, text in values.items() if name in LOG_SETTINGS.by_name})
        policy = parsed["cleanup.policy"]
        storage = Storage(parsed["storage"])
        segment_bytes, retention_bytes = parsed["segment.bytes"], parsed["retention.bytes"]
        segment_ms = parsed["segment.ms"]
        if not running:
            _check_together(parsed)
        elif storage is Storage.MEMORY:
            policy = ("delete",)
        if "compact" in policy:  # what is in the last segment is not compacted: it must end in time
            segment_ms = min(segment_ms, parsed["max.compaction.lag.ms"])
        if storage is Storage.MEMORY:
            retention_bytes = retention_bytes if retention_bytes > 0 else MEMORY_RETENTION_BYTES
            segment_bytes = min(segment_bytes, max(1024, retention_bytes // MEMORY_SEGMENTS))
        return cls(
            storage=storage,
            flush=Flush(parsed["flush"]),
            compacted="compact" in policy,
            deleted="delete" in policy,
            compression_type=parsed["compression.type"],
            compression_levels={codec: parsed[f"compression.{codec}.level"] for codec in ("gzip", "lz4", "zstd")},
            decompressed_bytes_max=parsed["decompressed.batch.max.bytes"],
            delete_retention_ms=parsed["delete.retention.ms"],
            index_interval_bytes=parsed["index.interval.bytes"],
            max_compaction_lag_ms=parsed["max.compaction.lag.ms"],
            max_message_bytes=parsed["max.message.bytes"],
            max_producer_ids=parsed[MAX_PRODUCER_IDS],
            timestamp_after_max_ms=parsed["message.timestamp.after.max.ms"],
            timestamp_before_max_ms=parsed["message.timestamp.before.max.ms"],
            log_append_time=parsed["message.timestamp.type"] == "LogAppendTime",
            min_cleanable_dirty_ratio=parsed["min.cleanable.dirty.ratio"],
            min_compaction_lag_ms=parsed["min.compaction.lag.ms"],
            min_insync_replicas=parsed["min.insync.replicas"],
            retention_bytes=retention_bytes,
            retention_ms=parsed["retention.ms"],
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
            segment_jitter_ms=parsed["segment.jitter.ms"],
            leader_throttled=NamedReplicas.parse(LEADER_THROTTLED, parsed[LEADER_THROTTLED]),
            follower_throttled=NamedReplicas.parse(FOLLOWER_THROTTLED, parsed[FOLLOWER_THROTTLED]),
            unclean=parsed["unclean.leader.election.enable"],
            delayed=parsed[DELAYED_MESSAGES],
            delivery_delay_ms=parsed[DELIVERY_DELAY_MS],
        )


def delays_messages(configs: Mapping[str, str]) -> bool:
    """Whether a topic with these settings of its own has delayed messages, and so companion logs for them."""
    setting = LOG_SETTINGS.get(DELAYED_MESSAGES)
    return bool(setting.parse(configs.get(DELAYED_MESSAGES, setting.default)))


def _check_together(parsed: Mapping[str, Any]) -> None:
    """What each setting alone cannot tell."""
    if parsed["storage"] == Storage.MEMORY and "compact" in parsed["cleanup.policy"]:
        raise InvalidConfig("storage=memory cannot be compacted; use cleanup.policy=delete")
    if parsed[DELAYED_MESSAGES] and "compact" in parsed["cleanup.policy"]:
        raise InvalidConfig(
            f"{DELAYED_MESSAGES}=true cannot be compacted: a message that is due comes again under its key; use "
            "cleanup.policy=delete"
        )
    if parsed[DELAYED_MESSAGES] and parsed["storage"] == Storage.MEMORY:
        raise InvalidConfig(f"{DELAYED_MESSAGES}=true needs storage=disk: messages may wait for a year")
    delay_ms, kept_ms = parsed[DELIVERY_DELAY_MS], parsed["retention.ms"]
    if delay_ms and "delete" in parsed["cleanup.policy"] and 0 <= kept_ms <= delay_ms:
        raise InvalidConfig(
            f"{DELIVERY_DELAY_MS}={delay_ms} holds records back for longer than retention.ms={kept_ms} keeps them; "
            "set retention.ms higher, too (-1: for ever)"
        )
    least_ms, most_ms = parsed["min.compaction.lag.ms"], parsed["max.compaction.lag.ms"]
    if least_ms > most_ms:
        raise InvalidConfig(f"min.compaction.lag.ms={least_ms} is more than max.compaction.lag.ms={most_ms}")
