"""Topic settings: valid values, invalid values, and their effect."""

import dataclasses

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import INT_MAX, LONG_MAX
from penstock.log.setting_table import DAY_MS, LOG_SETTINGS, RECORD_NAME, TOPIC_NAME
from penstock.log.settings import (
    FLUSH_INTERVALS,
    MEMORY_RETENTION_BYTES,
    MEMORY_SEGMENTS,
    Flush,
    LogSettings,
    Storage,
)

LONG = ("x", "1.5", "", str(2**63), "1_000")
INT = ("x", "1.5", "", str(2**31), "1_000")
THROTTLED = ("*", "", "0:1", "0:1,0:2, 17:3")
UNTHROTTLED = ("0", "0:", ":1", "0:1:2", "*,0:1", "a:b", "0:-1", "\u0661:1")
BOOLEAN = ("false", ("true", "TRUE"), ("yes", "1", ""))
STRATEGY = (TOPIC_NAME, (RECORD_NAME,), ("RecordNameStrategy", ""))

VALUES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    # name: (its default, what it takes, what it refuses)
    "cleanup.policy": ("delete", ("compact", "delete,compact", " compact , delete ", ""), ("gone", "delete,x")),
    "compression.type": ("producer", ("uncompressed", "gzip", "snappy", "lz4", "zstd"), ("none", "GZIP", "")),
    "compression.gzip.level": ("-1", ("1", "9", "-1"), ("10", "-2", *INT)),
    "compression.lz4.level": ("9", ("1", "17"), ("0", "18", *INT)),
    "compression.zstd.level": ("3", ("-131072", "22"), ("23", "-131073", *INT)),
    "delayed.messages": ("false", ("true", "TRUE"), ("yes", "1", "")),
    "delivery.delay.ms": ("0", ("1", str(365 * DAY_MS)), ("-1", str(366 * DAY_MS), *LONG)),
    "delete.retention.ms": (str(DAY_MS), ("0", str(LONG_MAX)), ("-1", *LONG)),
    "file.delete.delay.ms": ("60000", ("0", str(LONG_MAX)), ("-1", *LONG)),
    "flush": ("os", ("group",), ("disk", "OS", "")),
    "flush.messages": (str(LONG_MAX), ("1", str(LONG_MAX)), ("0", *LONG)),
    "flush.ms": (str(LONG_MAX), ("0", str(LONG_MAX)), ("-1", *LONG)),
    "follower.replication.throttled.replicas": ("", THROTTLED, UNTHROTTLED),
    "index.interval.bytes": ("4096", ("0", str(INT_MAX)), ("-1", *INT)),
    "leader.replication.throttled.replicas": ("", THROTTLED, UNTHROTTLED),
    "local.retention.bytes": ("-2", ("-1", "0"), ("-3", *LONG)),
    "local.retention.ms": ("-2", ("-1", "0"), ("-3", *LONG)),
    "max.compaction.lag.ms": (str(LONG_MAX), ("1",), ("0", *LONG)),
    "decompressed.batch.max.bytes": ("16777216", ("1024", str(INT_MAX)), ("1023", *INT)),
    "max.message.bytes": ("1048588", ("0", str(INT_MAX)), ("-1", *INT)),
    "max.producer.ids": ("10000", ("1", "100000"), ("0", "100001", *INT)),
    "message.timestamp.after.max.ms": ("3600000", ("0", str(LONG_MAX)), ("-1", *LONG)),
    "message.timestamp.before.max.ms": (str(LONG_MAX), ("0",), ("-1", *LONG)),
    "message.timestamp.type": ("CreateTime", ("LogAppendTime",), ("createtime", "")),
    "min.cleanable.dirty.ratio": ("0.5", ("0", "1", "0.01"), ("-0.1", "1.1", "nan", "inf", "x", "")),
    "min.compaction.lag.ms": ("0", ("0", str(LONG_MAX)), ("-1", *LONG)),
    "min.insync.replicas": ("1", ("3",), ("0", *INT)),
    "preallocate": ("false", ("true",), ("yes", "")),
    "remote.log.copy.disable": ("false", ("true",), ("yes", "")),
    "remote.log.delete.on.disable": ("false", ("true",), ("yes", "")),
    "remote.storage.enable": ("false", ("FALSE",), ("yes", "")),
    "retention.bytes": ("-1", ("0", str(LONG_MAX)), ("-2", *LONG)),
    "retention.ms": (str(7 * DAY_MS), ("-1", "0", str(LONG_MAX)), ("-2", *LONG)),
    "segment.bytes": (str(1 << 30), ("1024", str(INT_MAX)), ("1023", *INT)),
    "segment.index.bytes": (str(10 << 20), ("4", str(INT_MAX)), ("3", *INT)),
    "segment.ms": (str(7 * DAY_MS), ("1", str(LONG_MAX)), ("0", *LONG)),
    "schema.validation": BOOLEAN,
    "confluent.key.schema.validation": BOOLEAN,
    "confluent.value.schema.validation": BOOLEAN,
    "confluent.key.subject.name.strategy": STRATEGY,
    "confluent.value.subject.name.strategy": STRATEGY,
    "segment.jitter.ms": ("0", (str(LONG_MAX),), ("-1", *LONG)),
    "storage": ("disk", ("memory",), ("tape", "")),
    "unclean.leader.election.enable": ("false", ("true", "TRUE"), ("yes", "1", "")),
    "write.access": ("clients", ("brokers",), ("all", "")),
}


def test_every_setting_is_looked_at_here() -> None:
    assert set(VALUES) == set(LOG_SETTINGS.by_name)
    assert {name: entry.default for name, entry in LOG_SETTINGS.by_name.items()} == {
        name: default for name, (default, _, _) in VALUES.items()
    }


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, (_, good, _) in VALUES.items() for text in good])
def test_valid_values_are_accepted(name: str, text: str) -> None:
    others = {"retention.ms": "-1"} if name == "delivery.delay.ms" else {}  # they must go together
    assert LogSettings.of({name: f" {text} ", **others}) == LogSettings.of({name: text, **others})


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, (_, _, bad) in VALUES.items() for text in bad])
def test_invalid_values_are_refused_with_the_valid_ones(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name}=.* is not allowed; expected ") as refused:
        LogSettings.of({name: text})
    assert refused.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("given", [{"flush.messages": "10000"}, {"flush.ms": "0"}, {"flush": "group"}])
def test_a_topic_with_a_flush_interval_is_synced_before_it_acknowledges(
    given: dict[str, str],
) -> None:
    assert LogSettings.of(given).flush is Flush.GROUP
    assert LogSettings.of({**dict.fromkeys(FLUSH_INTERVALS, str(LONG_MAX)), "flush": "os"}).flush is Flush.OS


def test_there_is_no_tiered_storage() -> None:
    with pytest.raises(InvalidConfig, match="no tiered storage"):
        LogSettings.of({"remote.storage.enable": "true"})


def test_settings_of_other_packages_are_not_the_logs() -> None:
    assert LogSettings.of({"max.connections": "x"}) == LogSettings.of({})


def test_every_value_reaches_the_log() -> None:
    settings = LogSettings.of(
        {
            "cleanup.policy": "compact,delete",
            "compression.type": "zstd",
            "compression.gzip.level": "1",
            "compression.lz4.level": "2",
            "compression.zstd.level": "4",
            "delete.retention.ms": "11",
            "delivery.delay.ms": "22",
            "flush": "group",
            "index.interval.bytes": "12",
            "max.compaction.lag.ms": "2000",
            "max.message.bytes": "14",
            "max.producer.ids": "24",
            "decompressed.batch.max.bytes": "2000",
            "message.timestamp.after.max.ms": "15",
            "message.timestamp.before.max.ms": "16",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.25",
            "min.compaction.lag.ms": "17",
            "min.insync.replicas": "3",
            "retention.bytes": "18",
            "retention.ms": "23",
            "segment.bytes": "2048",
            "segment.ms": "20",
            "segment.jitter.ms": "21",
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "*",
            "unclean.leader.election.enable": "true",
            "write.access": "brokers",
            "schema.validation": "true",
            "confluent.value.subject.name.strategy": RECORD_NAME,
            "confluent.key.schema.validation": "true",
        }
    )
    assert dataclasses.asdict(settings) == {
        "storage": Storage.DISK,
        "flush": Flush.GROUP,
        "compacted": True,
        "deleted": True,
        "compression_type": "zstd",
        "compression_levels": {"gzip": 1, "lz4": 2, "zstd": 4},
        "delete_retention_ms": 11,
        "index_interval_bytes": 12,
        "max_compaction_lag_ms": 2000,
        "max_message_bytes": 14,
        "max_producer_ids": 24,
        "decompressed_bytes_max": 2000,
        "timestamp_after_max_ms": 15,
        "timestamp_before_max_ms": 16,
        "log_append_time": True,
        "min_cleanable_dirty_ratio": 0.25,
        "min_compaction_lag_ms": 17,
        "min_insync_replicas": 3,
        "broker_writes": True,
        "retention_bytes": 18,
        "retention_ms": 23,
        "segment_bytes": 2048,
        "segment_ms": 20,
        "segment_jitter_ms": 21,
        "leader_throttled": {"is_all": False, "pairs": frozenset({(0, 1), (0, 2)})},
        "follower_throttled": {"is_all": True, "pairs": frozenset()},
        "unclean": True,
        "delayed": False,
        "delivery_delay_ms": 22,
        "key_subjects": TOPIC_NAME,
        "value_subjects": RECORD_NAME,
    }


def test_records_are_not_held_back_for_longer_than_they_are_kept() -> None:
    for kept in ({}, {"retention.ms": "1000"}, {"retention.ms": "1000", "cleanup.policy": "compact,delete"}):
        with pytest.raises(InvalidConfig, match=r"delivery\.delay\.ms=\d+ holds records back for longer than"):
            LogSettings.of({"delivery.delay.ms": "1000" if kept else str(7 * DAY_MS), **kept})
    for kept in (
        {"retention.ms": "1001"},
        {"retention.ms": "-1"},
        {"retention.ms": "5", "cleanup.policy": "compact"},
    ):
        assert LogSettings.of({"delivery.delay.ms": "1000", **kept}).delivery_delay_ms == 1000
    assert LogSettings.of({"delivery.delay.ms": "9", "retention.ms": "5"}, running=True).delivery_delay_ms == 9


def test_delayed_messages_are_neither_compacted_nor_in_memory() -> None:
    assert LogSettings.of({"delayed.messages": "true"}).delayed
    for other in ({"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"}, {"storage": "memory"}):
        with pytest.raises(InvalidConfig, match=r"delayed\.messages=true"):
            LogSettings.of({"delayed.messages": "true", **other})


def test_a_companion_log_of_delayed_messages_is_compacted_soon() -> None:
    companion = LogSettings.of({"delayed.messages": "true"}).for_companion()
    assert companion.compacted
    assert not companion.delayed
    assert companion.delete_retention_ms == 0
    assert companion.segment_bytes < LogSettings.of({}).segment_bytes


def test_replicas_are_named_one_by_one_or_all_together() -> None:
    some = LogSettings.of({"leader.replication.throttled.replicas": "0:1, 3:2"}).leader_throttled
    assert (0, 1) in some
    assert (3, 2) in some
    assert (0, 2) not in some
    assert (7, 7) in LogSettings.of({"leader.replication.throttled.replicas": "*"}).leader_throttled
    assert (0, 1) not in LogSettings.of({}).leader_throttled


@pytest.mark.parametrize(
    ("policy", "compacted", "deleted"),
    [("delete", False, True), ("compact", True, False), ("compact,delete", True, True), ("", False, False)],
)
def test_a_cleanup_policy_may_be_both(policy: str, compacted: bool, deleted: bool) -> None:
    settings = LogSettings.of({"cleanup.policy": policy})
    assert (settings.compacted, settings.deleted) == (compacted, deleted)


@pytest.mark.parametrize("retention_bytes", ["-1", "0"])
def test_a_topic_in_memory_is_bounded_with_any_retention(retention_bytes: str) -> None:
    settings = LogSettings.of({"storage": "memory", "retention.bytes": retention_bytes})
    assert settings.retention_bytes == MEMORY_RETENTION_BYTES
    assert settings.segment_bytes == MEMORY_RETENTION_BYTES // MEMORY_SEGMENTS


def test_a_topic_in_memory_is_cut_into_small_segments() -> None:
    def segment_bytes(**values: str) -> int:
        named = {name.replace("_", "."): text for name, text in values.items()}
        return LogSettings.of({"storage": "memory", **named}).segment_bytes

    assert segment_bytes(retention_bytes="80000") == 10_000
    assert segment_bytes(retention_bytes="80000", segment_bytes="2000") == 2000
    assert segment_bytes(retention_bytes="100") == 1024


def test_a_topic_in_memory_cannot_be_compacted() -> None:
    for policy in ("compact", "compact,delete"):
        with pytest.raises(InvalidConfig, match="storage=memory cannot be compacted"):
            LogSettings.of({"storage": "memory", "cleanup.policy": policy})


def test_a_topic_in_memory_goes_on_though_the_brokers_default_is_to_compact() -> None:
    settings = LogSettings.of({"storage": "memory", "cleanup.policy": "compact"}, running=True)
    assert (settings.compacted, settings.deleted) == (False, True)


def test_records_cannot_be_made_to_wait_longer_than_they_may() -> None:
    lags = {"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "999"}
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms=1000 is more than max.compaction.lag.ms=999"):
        LogSettings.of(lags)
    assert LogSettings.of(lags, running=True).min_compaction_lag_ms == 1000
    assert LogSettings.of({**lags, "max.compaction.lag.ms": "1000"}).max_compaction_lag_ms == 1000


def test_segments_of_a_compacted_topic_end_in_time() -> None:
    values = {"max.compaction.lag.ms": "5000", "segment.ms": "60000"}
    assert LogSettings.of({**values, "cleanup.policy": "compact"}).segment_ms == 5000
    assert LogSettings.of(values).segment_ms == 60000
