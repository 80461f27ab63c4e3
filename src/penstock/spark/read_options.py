"""The options for reading, which are those of Spark's Kafka source: parsed and checked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.client.cluster import ClientSettings
from penstock.foundation.ids import TopicPartition
from penstock.spark.errors import BadOption
from penstock.spark.options import (
    CLIENT_OPTIONS,
    CLIENT_OPTIONS_IGNORED,
    INT_MAX,
    LONG_MAX,
    Options,
    OptionTable,
    bootstrap_of,
    client_settings_of,
)
from penstock.spark.positions import EARLIEST, LATEST, JsonForm, parse_partitions, parse_positions
from penstock.spark.values.options import (
    BAD_RECORD_OPTIONS,
    DEAD_LETTER_TOPIC,
    TYPED_OPTIONS,
    BadRecordOptions,
    TypedOptions,
    check_json_schema_given,
)

CLIENT_ID: Final = "penstock-spark"
FETCH_BYTES: Final = 8 << 20
"""Default maximum size of a Fetch response in bytes."""
POLL_TIMEOUT_MS: Final = 120_000
TRIGGER_DELAY_MS: Final = 15 * 60_000

READ_OPTIONS: Final = OptionTable(
    direction="reading",
    known=CLIENT_OPTIONS
    | TYPED_OPTIONS
    | BAD_RECORD_OPTIONS
    | {
        *("subscribe", "subscribePattern", "assign"),
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
        *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
        *("startingOffsetsByTimestampStrategy", "failOnDataLoss", "includeHeaders", "isolation", "pushFilters"),
        *("minPartitions", "maxRecordsPerPartition"),
        *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
        *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        *("kafka.group.id", "kafka.isolation.level", "kafka.check.crcs"),
        *("kafka.fetch.min.bytes", "kafka.fetch.max.bytes", "kafka.fetch.max.wait.ms"),
        "kafka.max.partition.fetch.bytes",
    },
    ignored=CLIENT_OPTIONS_IGNORED
    | {
        "groupIdPrefix",  # reading creates no consumer group
        *("kafka.session.timeout.ms", "kafka.heartbeat.interval.ms", "kafka.group.instance.id"),
        *("kafka.group.protocol", "kafka.group.remote.assignor", "kafka.partition.assignment.strategy"),
        *("kafka.max.poll.records", "kafka.max.poll.interval.ms", "kafka.auto.commit.interval.ms"),
        *("kafka.allow.auto.create.topics", "kafka.exclude.internal.topics", "kafka.client.rack"),
    },
    refused={
        "kafka.auto.offset.reset": "Spark manages the offsets; set 'startingOffsets' to earliest or latest",
        "kafka.enable.auto.commit": "offsets are committed to the group 'kafka.group.id' after each micro-batch",
        "kafka.key.deserializer": "set 'keyFormat' to the format of keys: text, json, avro, protobuf or json-schema",
        "kafka.value.deserializer": (
            "set 'valueFormat' to the format of values: text, json, avro, protobuf or json-schema"
        ),
        "kafka.interceptor.classes": "interceptors are Java classes, which Penstock cannot run; use Spark instead",
        "path": "topics are named by 'subscribe', 'subscribePattern' or 'assign'; call load() without a path",
        "topic": "it is for writing; topics to read are named by 'subscribe', 'subscribePattern' or 'assign'",
    },
)


class BoundKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIME = "time"
    TIMES = "times"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBound:
    """The offsets or times at which a read starts, or at which it ends."""

    kind: BoundKind
    option: str
    """Name of the option that set this bound, for error messages."""
    by_partition: Mapping[TopicPartition, int] | None = None
    """Offset (or EARLIEST, LATEST) or time in milliseconds of each partition; None if all share one bound."""
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """The partitions to read: those of listed topics, those of topics that match a pattern, or listed partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Names of the topics that must exist; empty for a pattern."""
        return self.topics or tuple(sorted({tp.topic for tp in self.partitions}))

    def matches(self, topic: str) -> bool:
        """Whether the selection includes a topic of this name, existing or not."""
        if self.pattern is not None:
            return re.search(self.pattern, topic) is not None
        return topic in self.topic_names

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics matching {self.pattern!r}"
        return ", ".join(map(str, sorted(self.partitions))) or ", ".join(self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Settings for fetching records on executors."""

    bytes_max: int = FETCH_BYTES
    bytes_min: int = 1
    wait_ms: int = 500
    poll_timeout_s: float = POLL_TIMEOUT_MS / 1000
    """Seconds that a task waits for records that should exist, even while brokers restart."""
    check_crcs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """Minimum and maximum size of a micro-batch, in offsets, and the maximum delay."""

    offsets_max: int | None
    offsets_min: int | None
    """Minimum number of offsets per micro-batch. If fewer are available, the micro-batch waits up to `delay_ms`."""
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    bootstrap: str
    client: ClientSettings
    selection: TopicSelection
    starting: OffsetBound | None
    ending: OffsetBound | None
    latest_if_no_match: bool
    """What to do if a partition has no record at or after the start time: True starts reading at its end, False
    fails."""
    committed: bool
    fail_on_data_loss: bool
    include_headers: bool
    push_filters: bool
    """Whether the source applies Spark's filters itself. Correct only if a DataFrame is used in one query, because
    Spark reuses the plan of its first scan, with the filters of that query."""
    tasks_min: int | None
    records_per_task_max: int | None
    trigger: TriggerSettings
    group: str | None
    fetch: FetchSettings
    connect_tries: int
    """How many times the driver tries to connect when no broker is reachable."""
    retry_interval_s: float
    typed: TypedOptions
    bad_records: BadRecordOptions

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "ReadOptions":
        """Parses the options given to `.option(...)`. Raises BadOption if one is unknown or invalid."""
        options = Options(given, READ_OPTIONS)
        bootstrap = bootstrap_of(options)
        selection = _parse_selection(options)
        typed = TypedOptions.parse(options)
        return cls(
            bootstrap=bootstrap,
            client=client_settings_of(options, client_id=CLIENT_ID),
            selection=selection,
            starting=_parse_bound(options, "starting"),
            ending=_parse_bound(options, "ending"),
            latest_if_no_match=options.choice(
                "startingOffsetsByTimestampStrategy",
                {"error": "fail if a partition has no such record", "latest": "start at the end of that partition"},
                "error",
            )
            == "latest",
            committed=_parse_isolation(options),
            fail_on_data_loss=options.flag("failOnDataLoss", True),
            include_headers=options.flag("includeHeaders", False),
            push_filters=options.flag("pushFilters", False),
            tasks_min=options.integer("minPartitions", most=INT_MAX),
            records_per_task_max=options.integer("maxRecordsPerPartition"),
            trigger=_parse_trigger(options),
            group=options.text("kafka.group.id"),
            fetch=_parse_fetch(options),
            connect_tries=options.integer("fetchOffset.numRetries", most=INT_MAX) or 3,
            retry_interval_s=options.duration_ms("fetchOffset.retryIntervalMs", 1000) / 1000,
            typed=typed,
            bad_records=_parse_bad_records(options, typed, selection),
        )

    def check_batch(self) -> None:
        """Raises BadOption if the options do not allow a batch query."""
        for bound, wrong, can in ((self.starting, LATEST, EARLIEST), (self.ending, EARLIEST, LATEST)):
            if bound is None:
                continue
            kinds = {EARLIEST: BoundKind.EARLIEST, LATEST: BoundKind.LATEST}
            if bound.kind is kinds[wrong]:
                raise BadOption(
                    f"option {bound.option!r} is {kinds[wrong].value} in a batch query: there would be nothing to "
                    f"read; it can be {kinds[can].value} or offsets by partition"
                )
            for tp, offset in (bound.by_partition or {}).items():
                if bound.kind is BoundKind.OFFSETS and offset == wrong:
                    raise BadOption(
                        f"option {bound.option!r} has {wrong} ({kinds[wrong].value}) for partition {tp} in a batch "
                        f"query: it can be an offset or {can} ({kinds[can].value})"
                    )

    def check_stream(self) -> None:
        """Raises BadOption if the options do not allow a streaming query."""
        if self.ending is not None:
            raise BadOption(
                f"option {self.ending.option!r} is for batch queries: a stream has no end; to read the available "
                "records and stop, use trigger(availableNow=True)"
            )


def _parse_selection(options: Options) -> TopicSelection:
    alternatives = ("subscribe", "subscribePattern", "assign")
    given = [way for way in alternatives if way in options]
    if len(given) != 1:
        what = f"{' and '.join(map(repr, given))} are both set" if given else "no topic is named"
        raise BadOption(f"{what}; set just one of the options {', '.join(map(repr, alternatives))}")
    text = options.text(given[0]) or ""
    if given[0] == "assign":
        return TopicSelection(partitions=parse_partitions("assign", text))
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise BadOption(
                f"option 'subscribePattern' is {text!r}, which is not a regular expression: {error}"
            ) from None
        return TopicSelection(pattern=text)
    topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in text.split(",")))))
    if not topics:
        raise BadOption(
            f"option 'subscribe' is {text!r}, which names no topic; give one or more, separated by commas"
        )
    return TopicSelection(topics=topics)


def _parse_bound(options: Options, side: str) -> OffsetBound | None:
    """Returns the bound for `side` ("starting" or "ending"); None if no option sets it. As in Spark, an option for
    one time overrides times by partition, which override offsets."""
    option = f"{side}Timestamp"
    time_ms = options.integer(option, least=0)
    if time_ms is not None:
        return OffsetBound(kind=BoundKind.TIME, option=option, time_ms=time_ms)
    option = f"{side}OffsetsByTimestamp"
    text = options.text(option)
    if text is not None:
        times_ms = parse_positions(option, text, JsonForm.TIMESTAMPS, least=0)
        return OffsetBound(kind=BoundKind.TIMES, option=option, by_partition=times_ms)
    option = f"{side}Offsets"
    text = options.text(option)
    if text is None:
        return None
    for kind in (BoundKind.EARLIEST, BoundKind.LATEST):
        if text.lower() == kind.value:
            return OffsetBound(kind=kind, option=option)
    if not text.startswith("{"):
        raise BadOption(f"option {option!r} is {text!r}; it can be earliest, latest or like {JsonForm.OFFSETS.value}")
    offsets = parse_positions(option, text, JsonForm.OFFSETS, least=EARLIEST)
    return OffsetBound(kind=BoundKind.OFFSETS, option=option, by_partition=offsets)


def _parse_isolation(options: Options) -> bool:
    levels = {
        "read_committed": "committed records only; the default, unlike in Spark's Kafka source",
        "read_uncommitted": "also records of open and aborted transactions",
    }
    names = [name for name in ("isolation", "kafka.isolation.level") if name in options]
    found = {options.choice(name, levels, "") for name in names}
    if len(found) > 1:
        raise BadOption("options 'isolation' and 'kafka.isolation.level' differ; set only one of them")
    return found != {"read_uncommitted"}


def _parse_bad_records(options: Options, typed: TypedOptions, selection: TopicSelection) -> BadRecordOptions:
    for part in typed.parts:
        check_json_schema_given(part)
    found = BadRecordOptions.parse(options, typed)
    if found.topic is not None and selection.matches(found.topic):
        raise BadOption(
            f"option {DEAD_LETTER_TOPIC!r} names {found.topic!r}, which the query reads: it would read its own dead "
            "letters again; name another topic"
        )
    return found


def _parse_trigger(options: Options) -> TriggerSettings:
    most, least = options.integer("maxOffsetsPerTrigger"), options.integer("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise BadOption(
            f"option 'minOffsetsPerTrigger' is {least}; it must not exceed 'maxOffsetsPerTrigger', which is {most}"
        )
    return TriggerSettings(
        offsets_max=most, offsets_min=least, delay_ms=options.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS)
    )


def _parse_fetch(options: Options) -> FetchSettings:
    defaults = FetchSettings()
    sizes = [
        options.integer(name, most=INT_MAX) for name in ("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes")
    ]
    wait_ms = options.integer("kafka.fetch.max.wait.ms", least=0, most=INT_MAX)
    return FetchSettings(
        bytes_max=min((size for size in sizes if size is not None), default=defaults.bytes_max),
        bytes_min=options.integer("kafka.fetch.min.bytes", least=0, most=INT_MAX) or defaults.bytes_min,
        wait_ms=defaults.wait_ms if wait_ms is None else wait_ms,
        poll_timeout_s=(options.integer("kafkaConsumer.pollTimeoutMs", most=LONG_MAX) or POLL_TIMEOUT_MS) / 1000,
        check_crcs=options.flag("kafka.check.crcs", True),
    )
