"""The options of writing: those of Spark's Kafka sink and of Kafka's producer, checked and made into values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.client.cluster import ClientSettings
from penstock.client.sender import UNDER_WAY_MAX, SendSettings
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.spark_ids import check_query
from penstock.records.compression import Codec
from penstock.spark.errors import BadOption
from penstock.spark.options import (
    CLIENT_OPTIONS,
    CLIENT_OPTIONS_IGNORED,
    INT_MAX,
    Options,
    Vocabulary,
    bootstrap_of,
    client_settings_of,
)

CLIENT_ID: Final = "penstock-spark"
BATCH_BYTES: Final = 256 << 10
"""Of records before they are compressed: where the broker is fastest, and below what topics take by default."""
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""As long as brokers allow by default: a task that is done early waits for the slowest of its batch."""
DELIVERY_TIMEOUT_MS: Final = 120_000
TXN_APP: Final = "txnAppId"
TXN_VERSION: Final = "txnVersion"
"""As Delta has them: a batch write that is done again under the same name and number counts once: foreachBatch."""
COMPRESSION: Final = "kafka.compression.type"
TRANSACTION_TIMEOUT: Final = "kafka.transaction.timeout.ms"
BATCH_SIZE: Final = "kafka.batch.size"
REQUEST_SIZE: Final = "kafka.max.request.size"
_LEVELS: Final = {
    Codec.GZIP: ("kafka.compression.gzip.level", 1, 9),
    Codec.LZ4: ("kafka.compression.lz4.level", 1, 17),
    Codec.ZSTD: ("kafka.compression.zstd.level", -131_072, 22),
}
"""By codec, the option for its level, and what that can be: as Kafka has it."""

WORDS: Final = Vocabulary(
    direction="writing",
    known=CLIENT_OPTIONS
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
        *("checkpointLocation", "queryName", "includeHeaders", "path"),  # Spark's own, or of the source
        *("kafka.retries", "kafka.max.block.ms"),  # what may succeed is tried until the delivery timeout
        *("kafka.metadata.max.idle.ms", "kafka.metadata.recovery.strategy"),
        *("kafka.partitioner.ignore.keys", "kafka.partitioner.adaptive.partitioning.enable"),
        "kafka.partitioner.availability.timeout.ms",
    },
    refused={
        "kafka.key.serializer": "keys are written as they are; make them strings or binary in Spark",
        "kafka.value.serializer": "values are written as they are; make them strings or binary in Spark",
        "kafka.transactional.id": "each task has one of its own, made of the query, its partition and its attempt",
        "kafka.interceptor.classes": "there is no Java here to run them; change the rows in Spark",
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
    """Where all rows go, whatever their column says."""
    delivery: Delivery
    codec: Codec
    level: int | None
    batch_bytes: int
    record_bytes_max: int | None
    """The largest record that may be sent; None: what its topic takes."""
    transaction_timeout_ms: int
    send: SendSettings
    txn_app: str | None = None
    """Under what name a batch write is decided; None: one of its own, which is forgotten with it."""
    txn_version: int = 0

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "WriteOptions":
        """From what was given to `.option(...)`. BadOption says what is wrong."""
        options = Options(given, WORDS)
        codec = _codec(options)
        _check_promises(options)
        options.whole("kafka.linger.ms", least=0)  # a batch goes when it is full or the task is done: nothing lingers
        return cls(
            bootstrap=bootstrap_of(options),
            client=client_settings_of(options, client_id=CLIENT_ID),
            topic=options.text("topic"),
            delivery=Delivery(
                options.choice(
                    "delivery",
                    {
                        "exactly-once": "what a batch writes is there once, all at once or not at all; the default",
                        "at-least-once": "what is written again is there again; no transactions",
                    },
                    "exactly-once",
                )
            ),
            codec=codec,
            level=_level(options, codec),
            batch_bytes=_at_least_one(options.whole(BATCH_SIZE, least=0, most=INT_MAX // 2), BATCH_BYTES),
            record_bytes_max=options.whole(REQUEST_SIZE, most=INT_MAX // 2),
            transaction_timeout_ms=options.whole(TRANSACTION_TIMEOUT, most=INT_MAX) or TRANSACTION_TIMEOUT_MS,
            send=_send(options),
            txn_app=_txn_app(options),
            txn_version=options.whole(TXN_VERSION, least=0) or 0,
        )


def _txn_app(options: Options) -> str | None:
    name = options.text(TXN_APP)
    if (name is None) != (TXN_VERSION not in options):
        raise BadOption(f"options {TXN_APP!r} and {TXN_VERSION!r} go together, and one of them is missing")
    if name is not None:
        try:
            check_query(name)
        except InvalidRequest as error:
            raise BadOption(f"option {TXN_APP!r}: {error}") from None
    return name


def _codec(options: Options) -> Codec:
    what = {codec.name.lower(): f"codec {codec.value}" for codec in Codec}
    return Codec[options.choice(COMPRESSION, what, "none").upper()]


def _level(options: Options, codec: Codec) -> int | None:
    """The level of the codec in use; those of others are without effect, as in Kafka."""
    found = None
    for each, (name, least, most) in _LEVELS.items():
        level = options.whole(name, least=least, most=most)
        if each is codec:
            found = level
    return found


def _check_promises(options: Options) -> None:
    """What would break either delivery is refused, not ignored."""
    acks = options.text("kafka.acks", "all")
    if acks not in ("all", "-1"):
        raise BadOption(
            f"option 'kafka.acks' is {acks!r}, it can only be all: with less, what was acknowledged may be lost, and "
            "neither delivery would hold"
        )
    if not options.flag("kafka.enable.idempotence", True):
        raise BadOption("option 'kafka.enable.idempotence' can only be true: a batch that is sent again is kept once")
    partitioner = options.text("kafka.partitioner.class")
    if partitioner is not None and "DefaultPartitioner" not in partitioner:
        raise BadOption(
            f"option 'kafka.partitioner.class' is {partitioner!r}: there is no Java here to run it; rows go by the "
            "hash of their key as with Kafka's default, or where a column 'partition' says"
        )


def _send(options: Options) -> SendSettings:
    usual = SendSettings()
    under_way = options.whole("kafka.max.in.flight.requests.per.connection", most=INT_MAX)
    if under_way is not None and under_way > UNDER_WAY_MAX:
        raise BadOption(
            f"option 'kafka.max.in.flight.requests.per.connection' is {under_way}, it can be 1 to {UNDER_WAY_MAX}: "
            "brokers know that many batches again"
        )
    delivery_ms = options.whole("kafka.delivery.timeout.ms", least=0, most=INT_MAX)
    return SendSettings(
        under_way_max=under_way or usual.under_way_max,
        buffer_bytes_max=_at_least_one(options.whole("kafka.buffer.memory", least=0), usual.buffer_bytes_max),
        delivery_timeout_s=(DELIVERY_TIMEOUT_MS if delivery_ms is None else delivery_ms) / 1000,
    )


def _at_least_one(given: int | None, default: int) -> int:
    """Kafka takes 0 for as little as can be."""
    return default if given is None else max(given, 1)
