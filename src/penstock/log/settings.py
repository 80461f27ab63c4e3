"""The parsed topic settings of a log, under Kafka's names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import INT_MAX, LONG_MAX
from penstock.log.setting_table import (
    BROKERS,
    CLIENTS,
    DELAYED_MESSAGES,
    DELIVERY_DELAY_MS,
    FOLLOWER_THROTTLED,
    KEY_SCHEMA_VALIDATION,
    KEY_SUBJECT_NAMES,
    LEADER_THROTTLED,
    LOG_SETTINGS,
    MAX_PRODUCER_IDS,
    MESSAGE_BYTES_DEFAULT,
    REMOTE_STORAGE,
    SCHEMA_VALIDATION,
    TOPIC_NAME,
    TOPIC_RECORD_NAME,
    VALUE_SCHEMA_VALIDATION,
    VALUE_SUBJECT_NAMES,
    WRITE_ACCESS,
)

MEMORY_RETENTION_BYTES: Final = 64 << 20
"""Value of retention.bytes for a memory topic that does not set it to a positive number."""
COMPANION_SEGMENT_BYTES_MAX: Final = 128 << 20
"""Maximum segment size, in bytes, of a companion log for delayed messages: small, as active segments are not
compacted."""
FLUSH_INTERVALS: Final = ("flush.messages", "flush.ms")
"""Names of Kafka's flush settings: if a topic sets one, its messages are fsynced before they are acknowledged."""
MEMORY_SEGMENTS: Final = 8
"""Approximate number of segments of a memory log: dropping the oldest segment frees a small part of the log."""


VALUE: Final = "value"
KEY: Final = "key"


class Storage(StrEnum):
    DISK = "disk"
    MEMORY = "memory"


class Flush(StrEnum):
    OS = "os"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class SubjectRule:
    """The subjects under which the schemas of a topic's keys or values must be registered.

    >>> SubjectRule.of(TOPIC_NAME, "orders", "value")
    SubjectRule(name='orders-value', is_prefix=False)
    """

    name: str
    is_prefix: bool
    """Whether `name` is the beginning of the subjects' names; an empty one means all subjects."""

    @staticmethod
    @lru_cache(10_000)
    def of(strategy: str, topic: str, part: str) -> "SubjectRule":
        """Returns the rule of one of Confluent's subject name strategies. `part`: VALUE or KEY."""
        if strategy == TOPIC_NAME:
            return SubjectRule(f"{topic}-{part}", False)
        return SubjectRule(f"{topic}-" if strategy == TOPIC_RECORD_NAME else "", True)

    def __str__(self) -> str:
        if not self.is_prefix:
            return f"under the subject {self.name!r}"
        return f"under a subject that starts with {self.name!r}" if self.name else "under any subject"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedReplicas:
    """The replicas of a topic that a setting lists: all replicas, or some as `partition:broker`.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The parsed settings of one log. `LogSettings.of({})` returns the defaults."""

    storage: Storage
    flush: Flush
    compacted: bool
    deleted: bool
    compression_type: str
    compression_levels: Mapping[str, int]
    decompressed_bytes_max: int
    """Maximum decompressed size, in bytes, of a batch that the broker decompresses."""
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
    """Whether the topic has delayed messages: record headers may delay delivery."""
    delivery_delay_ms: int
    broker_writes: bool
    """Whether only brokers write to the topic, as to that of the schema registry."""
    key_subjects: str | None
    """The subject name strategy by which keys are validated; None if they are not."""
    value_subjects: str | None
    """The subject name strategy by which values are validated; None if they are not."""

    @property
    def validates_schemas(self) -> bool:
        """Whether records without the id of a known schema are refused."""
        return self.value_subjects is not None or self.key_subjects is not None

    def for_companion(self) -> "LogSettings":
        """Returns the settings of a companion log: the partition's second log, for queue state or delayed
        messages. It has the same durability settings as the partition's own log, and no retention."""
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
            key_subjects=None,
            value_subjects=None,
            # Deliveries have their own records, so no reader needs the tombstones of delivered messages.
            delete_retention_ms=0 if self.delayed else self.delete_retention_ms,
            segment_bytes=min(self.segment_bytes, COMPANION_SEGMENT_BYTES_MAX)
            if self.delayed
            else self.segment_bytes,
        )

    def for_internal_topic(self) -> "LogSettings":
        """Returns the settings of a coordinator's internal topic: no retention, unless the topic is in memory."""
        return replace(
            self,
            compacted=self.storage is Storage.DISK,
            deleted=self.storage is Storage.MEMORY,
            max_message_bytes=max(self.max_message_bytes, MESSAGE_BYTES_DEFAULT),
            delivery_delay_ms=0,
            key_subjects=None,
            value_subjects=None,
        )

    def subject_rules(self, topic: str) -> dict[str, SubjectRule]:
        """Returns where the schemas of the validated parts of records (VALUE, KEY) must be registered."""
        strategies = ((VALUE, self.value_subjects), (KEY, self.key_subjects))
        return {part: SubjectRule.of(strategy, topic, part) for part, strategy in strategies if strategy is not None}

    @classmethod
    def of(cls, values: Mapping[str, str], *, running: bool = False) -> "LogSettings":
        """Parses and checks the given values; other settings get their defaults. Raises InvalidConfig.

        `running`: whether the topic already exists. Conflicting settings, which a changed broker default can cause,
        are then adjusted; otherwise they raise InvalidConfig.
        """
        parsed = LOG_SETTINGS.parse({name: text for name, text in values.items() if name in LOG_SETTINGS.by_name})
        policy = parsed["cleanup.policy"]
        storage = Storage(parsed["storage"])
        is_synced = parsed["flush"] == Flush.GROUP or any(parsed[name] != LONG_MAX for name in FLUSH_INTERVALS)
        segment_bytes, retention_bytes = parsed["segment.bytes"], parsed["retention.bytes"]
        segment_ms = parsed["segment.ms"]
        if not running:
            _check_together(parsed)
        elif storage is Storage.MEMORY:
            policy = ("delete",)
        if "compact" in policy:  # the active segment is not compacted, so it must roll in time
            segment_ms = min(segment_ms, parsed["max.compaction.lag.ms"])
        if storage is Storage.MEMORY:
            retention_bytes = retention_bytes if retention_bytes > 0 else MEMORY_RETENTION_BYTES
            segment_bytes = min(segment_bytes, max(1024, retention_bytes // MEMORY_SEGMENTS))
        return cls(
            storage=storage,
            flush=Flush.GROUP if is_synced else Flush.OS,
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
            broker_writes=parsed[WRITE_ACCESS] == BROKERS,
            key_subjects=parsed[KEY_SUBJECT_NAMES] if parsed[KEY_SCHEMA_VALIDATION] else None,
            value_subjects=parsed[VALUE_SUBJECT_NAMES]
            if parsed[SCHEMA_VALIDATION] or parsed[VALUE_SCHEMA_VALIDATION]
            else None,
        )


def is_written_by_brokers(configs: Mapping[str, str]) -> bool:
    """Returns whether only brokers write to a topic with these settings."""
    return configs.get(WRITE_ACCESS, CLIENTS).strip() == BROKERS


def delays_messages(configs: Mapping[str, str]) -> bool:
    """Returns whether a topic with these settings has delayed messages, and therefore companion logs."""
    setting = LOG_SETTINGS.get(DELAYED_MESSAGES)
    return bool(setting.parse(configs.get(DELAYED_MESSAGES, setting.default)))


def _check_together(parsed: Mapping[str, Any]) -> None:
    """Raises InvalidConfig if settings conflict with each other."""
    if parsed[REMOTE_STORAGE]:
        raise InvalidConfig("there is no tiered storage: a topic cannot have remote.storage.enable=true")
    if parsed["storage"] == Storage.MEMORY and "compact" in parsed["cleanup.policy"]:
        raise InvalidConfig("storage=memory cannot be compacted; use cleanup.policy=delete")
    if parsed[DELAYED_MESSAGES] and "compact" in parsed["cleanup.policy"]:
        raise InvalidConfig(
            f"{DELAYED_MESSAGES}=true cannot be compacted: a delivered message is appended again with its key; use "
            "cleanup.policy=delete"
        )
    if parsed[DELAYED_MESSAGES] and parsed["storage"] == Storage.MEMORY:
        raise InvalidConfig(f"{DELAYED_MESSAGES}=true needs storage=disk: messages may wait for a year")
    delay_ms, kept_ms = parsed[DELIVERY_DELAY_MS], parsed["retention.ms"]
    if delay_ms and "delete" in parsed["cleanup.policy"] and 0 <= kept_ms <= delay_ms:
        raise InvalidConfig(
            f"{DELIVERY_DELAY_MS}={delay_ms} holds records back for longer than retention.ms={kept_ms} keeps them; "
            "set retention.ms higher, too (-1: no limit)"
        )
    least_ms, most_ms = parsed["min.compaction.lag.ms"], parsed["max.compaction.lag.ms"]
    if least_ms > most_ms:
        raise InvalidConfig(f"min.compaction.lag.ms={least_ms} is more than max.compaction.lag.ms={most_ms}")
