"""The options for writing, which are those of Spark's Kafka sink and of Kafka's producer: parsed and checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from penstock.client.cluster import ClientSettings
from penstock.client.sender import IN_FLIGHT_MAX, SendSettings
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.spark_ids import check_query
from penstock.records.compression import Codec
from penstock.spark.errors import BadOption
from penstock.spark.options import (
    CLIENT_OPTIONS,
    CLIENT_OPTIONS_IGNORED,
    INT_MAX,
    Options,
    OptionTable,
    bootstrap_of,
    client_settings_of,
)
from penstock.spark.values.options import REGISTRATION_OPTIONS, TYPED_OPTIONS, RegistrationOptions, TypedOptions

CLIENT_ID: Final = "penstock-spark"
BATCH_BYTES: Final = 256 << 10
"""Default maximum size of an uncompressed batch, in bytes: fastest for brokers, and below `max.message.bytes`."""
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Default transaction timeout in milliseconds: the brokers' maximum, as transactions last until all tasks end."""
DELIVERY_TIMEOUT_MS: Final = 120_000
TXN_APP: Final = "txnAppId"
TXN_VERSION: Final = "txnVersion"
"""Name of an option: a batch write repeated with equal `txnAppId` and `txnVersion` takes effect once, as in Delta."""
COMPRESSION: Final = "kafka.compression.type"
TRANSACTION_TIMEOUT: Final = "kafka.transaction.timeout.ms"
BATCH_SIZE: Final = "kafka.batch.size"
REQUEST_SIZE: Final = "kafka.max.request.size"
_LEVELS: Final = {
    Codec.GZIP: ("kafka.compression.gzip.level", 1, 9),
    Codec.LZ4: ("kafka.compression.lz4.level", 1, 17),
    Codec.ZSTD: ("kafka.compression.zstd.level", -131_072, 22),
}
"""For each codec, the option for its compression level, and the minimum and maximum level, as in Kafka."""

WRITE_OPTIONS: Final = OptionTable(
    direction="writing",
    known=CLIENT_OPTIONS
    | TYPED_OPTIONS
    | REGISTRATION_OPTIONS
    | {
        *("topic", "delivery", TXN_APP, TXN_VERSION),
        *(COMPRESSION, *(level[0] for level in _LEVELS.values())),
        *(BATCH_SIZE, REQUEST_SIZE, "kafka.buffer.memory", "kafka.linger.ms"),
        *("kafka.acks", "kafka.enable.idempotence", "kafka.max.in.flight.requests.per.connection"),
        *("kafka.delivery.timeout.ms", TRANSACTION_TIMEOUT),
        "kafka.partitioner.class",
    },
    ignored=CLIENT_OPTIONS_IGNORED
    | {
        *("checkpointLocation", "queryName", "includeHeaders", "path"),  # of Spark, or of the source
        *("kafka.retries", "kafka.max.block.ms"),  # retries end with the delivery timeout
        *("kafka.metadata.max.idle.ms", "kafka.metadata.recovery.strategy"),
        *("kafka.partitioner.ignore.keys", "kafka.partitioner.adaptive.partitioning.enable"),
        "kafka.partitioner.availability.timeout.ms",
    },
    refused={
        "kafka.key.serializer": "set 'keyFormat' to the format of keys: text, json, avro, protobuf or json-schema",
        "kafka.value.serializer": (
            "set 'valueFormat' to the format of values: text, json, avro, protobuf or json-schema"
        ),
        "kafka.transactional.id": "each task has its own, built from the query, its partition and its attempt",
        "kafka.interceptor.classes": "interceptors are Java classes, which Penstock cannot run; use Spark instead",
        "subscribe": "it is for reading; the topic to write to is named by 'topic', or by a column of that name",
        "subscribePattern": "it is for reading; the topic to write to is named by 'topic', or by such a column",
        "assign": "it is for reading; the topic is named by 'topic', the partition by a column 'partition'",
    },
)


class Delivery(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    bootstrap: str
    client: ClientSettings
    topic: str | None
    """The topic for all rows; overrides the column `topic`."""
    delivery: Delivery
    codec: Codec
    level: int | None
    batch_bytes: int
    record_bytes_max: int | None
    """Maximum bytes of a record; None if only the topic's `max.message.bytes` limits it."""
    transaction_timeout_ms: int
    send: SendSettings
    txn_app: str | None = None
    """The query id of a batch write (`txnAppId`): a repeated write takes effect once. None: a new id per write."""
    txn_version: int = 0
    typed: TypedOptions = field(default_factory=TypedOptions)
    registration: RegistrationOptions = field(default_factory=RegistrationOptions)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "WriteOptions":
        """Parses the options given to `.option(...)`. Raises BadOption if one is unknown or invalid."""
        options = Options(given, WRITE_OPTIONS)
        typed = TypedOptions.parse(options)
        codec = _parse_codec(options)
        _check_delivery_options(options)
        options.integer("kafka.linger.ms", least=0)  # checked only: batches are sent when full or at the end
        return cls(
            bootstrap=bootstrap_of(options),
            client=client_settings_of(options, client_id=CLIENT_ID),
            topic=options.text("topic"),
            delivery=Delivery(
                options.choice(
                    "delivery",
                    {
                        "exactly-once": "all rows of a batch are written once and appear together; the default",
                        "at-least-once": "retried rows may appear twice; no transactions",
                    },
                    "exactly-once",
                )
            ),
            codec=codec,
            level=_parse_level(options, codec),
            batch_bytes=_at_least_one(options.integer(BATCH_SIZE, least=0, most=INT_MAX // 2), BATCH_BYTES),
            record_bytes_max=options.integer(REQUEST_SIZE, most=INT_MAX // 2),
            transaction_timeout_ms=options.integer(TRANSACTION_TIMEOUT, most=INT_MAX) or TRANSACTION_TIMEOUT_MS,
            send=_parse_send(options),
            txn_app=_parse_txn_app(options),
            txn_version=options.integer(TXN_VERSION, least=0) or 0,
            typed=typed,
            registration=RegistrationOptions.parse(options, typed),
        )


def _parse_txn_app(options: Options) -> str | None:
    name = options.text(TXN_APP)
    if (name is None) != (TXN_VERSION not in options):
        raise BadOption(f"options {TXN_APP!r} and {TXN_VERSION!r} must be set together; one of them is missing")
    if name is not None:
        try:
            check_query(name)
        except InvalidRequest as error:
            raise BadOption(f"option {TXN_APP!r}: {error}") from None
    return name


def _parse_codec(options: Options) -> Codec:
    what = {codec.name.lower(): f"codec {codec.value}" for codec in Codec}
    return Codec[options.choice(COMPRESSION, what, "none").upper()]


def _parse_level(options: Options, codec: Codec) -> int | None:
    """Returns the compression level set for `codec`; None if not set. Levels of other codecs have no effect."""
    found = None
    for each, (name, least, most) in _LEVELS.items():
        level = options.integer(name, least=least, most=most)
        if each is codec:
            found = level
    return found


def _check_delivery_options(options: Options) -> None:
    """Raises BadOption for producer settings that break the delivery guarantees or name a Java class."""
    acks = options.text("kafka.acks", "all")
    if acks not in ("all", "-1"):
        raise BadOption(
            f"option 'kafka.acks' is {acks!r}; it must be all: otherwise acknowledged records may be lost, which "
            "breaks both delivery guarantees"
        )
    if not options.flag("kafka.enable.idempotence", True):
        raise BadOption("option 'kafka.enable.idempotence' must be true: retried batches must not be duplicated")
    partitioner = options.text("kafka.partitioner.class")
    if partitioner is not None and "DefaultPartitioner" not in partitioner:
        raise BadOption(
            f"option 'kafka.partitioner.class' is {partitioner!r}, a Java class, which Penstock cannot run; rows are "
            "partitioned by the hash of their key as in Kafka, or by a column 'partition'"
        )


def _parse_send(options: Options) -> SendSettings:
    defaults = SendSettings()
    in_flight = options.integer("kafka.max.in.flight.requests.per.connection", most=INT_MAX)
    if in_flight is not None and in_flight > IN_FLIGHT_MAX:
        raise BadOption(
            f"option 'kafka.max.in.flight.requests.per.connection' is {in_flight}; it must be 1 to {IN_FLIGHT_MAX}: "
            "brokers detect duplicates among that many batches"
        )
    delivery_ms = options.integer("kafka.delivery.timeout.ms", least=0, most=INT_MAX)
    return SendSettings(
        in_flight_max=in_flight or defaults.in_flight_max,
        buffer_bytes_max=_at_least_one(options.integer("kafka.buffer.memory", least=0), defaults.buffer_bytes_max),
        delivery_timeout_s=(DELIVERY_TIMEOUT_MS if delivery_ms is None else delivery_ms) / 1000,
    )


def _at_least_one(given: int | None, default: int) -> int:
    """Returns `given`, or `default` if it is None; 1 for 0, which Kafka accepts for such settings."""
    return default if given is None else max(given, 1)
