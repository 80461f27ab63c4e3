"""The options of reading: those of Spark's Kafka source, checked and made into values."""

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
    Vocabulary,
    bootstrap_of,
    client_settings_of,
)
from penstock.spark.positions import EARLIEST, LATEST, Form, parse_partitions, parse_positions

CLIENT_ID: Final = "penstock-spark"
FETCH_BYTES: Final = 8 << 20
"""What one answer holds, unless the options say otherwise: few answers, and little to keep."""
PATIENCE_MS: Final = 120_000
TRIGGER_DELAY_MS: Final = 15 * 60_000

WORDS: Final = Vocabulary(
    direction="reading",
    known=CLIENT_OPTIONS
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
        "groupIdPrefix",  # no group is made of our own
        *("kafka.session.timeout.ms", "kafka.heartbeat.interval.ms", "kafka.group.instance.id"),
        *("kafka.group.protocol", "kafka.group.remote.assignor", "kafka.partition.assignment.strategy"),
        *("kafka.max.poll.records", "kafka.max.poll.interval.ms", "kafka.auto.commit.interval.ms"),
        *("kafka.allow.auto.create.topics", "kafka.exclude.internal.topics", "kafka.client.rack"),
    },
    refused={
        "kafka.auto.offset.reset": "Spark keeps the offsets itself; set 'startingOffsets' to earliest or latest",
        "kafka.enable.auto.commit": "offsets go to the group of 'kafka.group.id' when their batch is done",
        "kafka.key.deserializer": "keys come as bytes; cast them in Spark, e.g. col('key').cast('string')",
        "kafka.value.deserializer": "values come as bytes; cast them in Spark, e.g. col('value').cast('string')",
        "kafka.interceptor.classes": "there is no Java here to run them; change the rows in Spark",
        "path": "topics are named by 'subscribe', 'subscribePattern' or 'assign'; call load() without a path",
        "topic": "it is for writing; topics to read are named by 'subscribe', 'subscribePattern' or 'assign'",
    },
)


class At(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIME = "time"
    TIMES = "times"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Where reading starts or ends."""

    at: At
    option: str
    """The option that says so, for messages."""
    by_partition: Mapping[TopicPartition, int] | None = None
    """Offsets (EARLIEST and LATEST among them) or times in ms."""
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which partitions are read: of these topics, of those that match, or just these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that must be there."""
        return self.topics or tuple(sorted({name.topic for name in self.partitions}))

    def covers(self, topic: str) -> bool:
        """Whether a topic is meant, be it there or not."""
        if self.pattern is not None:
            return re.search(self.pattern, topic) is not None
        return topic in self.names

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        return ", ".join(map(str, sorted(self.partitions))) or ", ".join(self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How executors fetch."""

    bytes_max: int = FETCH_BYTES
    bytes_min: int = 1
    wait_ms: int = 500
    patience_s: float = PATIENCE_MS / 1000
    """How long an executor waits for records that should be there, a broker that comes back included."""
    check_crcs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """How much a micro-batch takes."""

    offsets_max: int | None
    offsets_min: int | None
    """Less than this waits for more, but no longer than `delay_ms`."""
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    bootstrap: str
    client: ClientSettings
    choice: Choice
    starting: Edge | None
    ending: Edge | None
    latest_where_none: bool
    """Whether a time that no record has reached means the end, or an error."""
    committed: bool
    fail_on_data_loss: bool
    include_headers: bool
    push_filters: bool
    """Whether filters narrow what is read: right only for a frame that is used in one query, see `reader.py`."""
    tasks_min: int | None
    records_per_task_max: int | None
    trigger: TriggerSettings
    group: str | None
    fetch: FetchSettings
    tries: int
    """How often the driver begins anew when no broker can be reached."""
    try_again_s: float

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "ReadOptions":
        """From what was given to `.option(...)`. BadOption says what is wrong."""
        options = Options(given, WORDS)
        return cls(
            bootstrap=bootstrap_of(options),
            client=client_settings_of(options, client_id=CLIENT_ID),
            choice=_choice(options),
            starting=_edge(options, "starting"),
            ending=_edge(options, "ending"),
            latest_where_none=options.choice(
                "startingOffsetsByTimestampStrategy",
                {"error": "fail where no record is that late", "latest": "begin at the end there"},
                "error",
            )
            == "latest",
            committed=_committed(options),
            fail_on_data_loss=options.flag("failOnDataLoss", True),
            include_headers=options.flag("includeHeaders", False),
            push_filters=options.flag("pushFilters", False),
            tasks_min=options.whole("minPartitions", most=INT_MAX),
            records_per_task_max=options.whole("maxRecordsPerPartition"),
            trigger=_trigger(options),
            group=options.text("kafka.group.id"),
            fetch=_fetch(options),
            tries=options.whole("fetchOffset.numRetries", most=INT_MAX) or 3,
            try_again_s=options.duration_ms("fetchOffset.retryIntervalMs", 1000) / 1000,
        )

    def check_batch(self) -> None:
        """What a batch query cannot be told."""
        for edge, wrong, can in ((self.starting, LATEST, EARLIEST), (self.ending, EARLIEST, LATEST)):
            if edge is None:
                continue
            places = {EARLIEST: At.EARLIEST, LATEST: At.LATEST}
            if edge.at is places[wrong]:
                raise BadOption(
                    f"option {edge.option!r} is {places[wrong].value} in a batch query: there would be nothing to "
                    f"read; it can be {places[can].value} or offsets by partition"
                )
            for name, offset in (edge.by_partition or {}).items():
                if edge.at is At.OFFSETS and offset == wrong:
                    raise BadOption(
                        f"option {edge.option!r} has {wrong} ({places[wrong].value}) for partition {name} in a batch "
                        f"query: it can be an offset or {can} ({places[can].value})"
                    )

    def check_stream(self) -> None:
        """What a streaming query cannot be told."""
        if self.ending is not None:
            raise BadOption(
                f"option {self.ending.option!r} is for batch queries: a stream has no end; to read what is there and "
                "stop use trigger(availableNow=True)"
            )


def _choice(options: Options) -> Choice:
    ways = ("subscribe", "subscribePattern", "assign")
    given = [way for way in ways if way in options]
    if len(given) != 1:
        what = f"{' and '.join(map(repr, given))} are both set" if given else "no topic is named"
        raise BadOption(f"{what}; set just one of the options {', '.join(map(repr, ways))}")
    text = options.text(given[0]) or ""
    if given[0] == "assign":
        return Choice(partitions=parse_partitions("assign", text))
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise BadOption(
                f"option 'subscribePattern' is {text!r}, which is no regular expression: {error}"
            ) from None
        return Choice(pattern=text)
    topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in text.split(",")))))
    if not topics:
        raise BadOption(
            f"option 'subscribe' is {text!r}, which names no topic; give one or more, with commas between"
        )
    return Choice(topics=topics)


def _edge(options: Options, side: str) -> Edge | None:
    """The first that is given of a time, times by partition, and offsets: as Spark's Kafka source prefers them."""
    option = f"{side}Timestamp"
    time_ms = options.whole(option, least=0)
    if time_ms is not None:
        return Edge(at=At.TIME, option=option, time_ms=time_ms)
    option = f"{side}OffsetsByTimestamp"
    text = options.text(option)
    if text is not None:
        return Edge(at=At.TIMES, option=option, by_partition=parse_positions(option, text, Form.TIMESTAMPS, least=0))
    option = f"{side}Offsets"
    text = options.text(option)
    if text is None:
        return None
    for at in (At.EARLIEST, At.LATEST):
        if text.lower() == at.value:
            return Edge(at=at, option=option)
    if not text.startswith("{"):
        raise BadOption(f"option {option!r} is {text!r}, it can be earliest, latest or like {Form.OFFSETS.value}")
    return Edge(
        at=At.OFFSETS, option=option, by_partition=parse_positions(option, text, Form.OFFSETS, least=EARLIEST)
    )


def _committed(options: Options) -> bool:
    levels = {
        "read_committed": "only what is committed; the default, unlike that of Spark's Kafka source",
        "read_uncommitted": "also what is open or was aborted",
    }
    names = [name for name in ("isolation", "kafka.isolation.level") if name in options]
    found = {options.choice(name, levels, "") for name in names}
    if len(found) > 1:
        raise BadOption("options 'isolation' and 'kafka.isolation.level' say different things; set one of them")
    return found != {"read_uncommitted"}


def _trigger(options: Options) -> TriggerSettings:
    most, least = options.whole("maxOffsetsPerTrigger"), options.whole("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise BadOption(
            f"option 'minOffsetsPerTrigger' is {least}, more than 'maxOffsetsPerTrigger', which is {most}"
        )
    return TriggerSettings(
        offsets_max=most, offsets_min=least, delay_ms=options.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS)
    )


def _fetch(options: Options) -> FetchSettings:
    usual = FetchSettings()
    sizes = [
        options.whole(name, most=INT_MAX) for name in ("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes")
    ]
    wait_ms = options.whole("kafka.fetch.max.wait.ms", least=0, most=INT_MAX)
    return FetchSettings(
        bytes_max=min((size for size in sizes if size is not None), default=usual.bytes_max),
        bytes_min=options.whole("kafka.fetch.min.bytes", least=0, most=INT_MAX) or usual.bytes_min,
        wait_ms=usual.wait_ms if wait_ms is None else wait_ms,
        patience_s=(options.whole("kafkaConsumer.pollTimeoutMs", most=LONG_MAX) or PATIENCE_MS) / 1000,
        check_crcs=options.flag("kafka.check.crcs", True),
    )
