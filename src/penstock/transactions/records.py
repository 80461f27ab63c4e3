"""Record schemas of `__transaction_state`: Kafka's for transactions, Penstock's own for Spark queries."""

from typing import Final

from penstock.foundation.spark_ids import coordinator_key, coordinator_key_of
from penstock.wire.schema import Array, Int8, Int16, Int32, Int64, String, field, record, struct
from penstock.wire.state import kind_of, read_key

TRANSACTION: Final = 0
TRANSACTION_VERSION: Final = 1


@record(versions="0", flexible="none")
class TransactionKey:
    transactional_id: String


@struct
class PartitionsOfTopic:
    topic: String
    partition_ids: Array[Int32]


@record(versions="0-1", flexible="1+")
class TransactionValue:
    producer_id: Int64
    previous_producer_id: Int64 = field("1+", tag=0, default=-1)
    next_producer_id: Int64 = field("1+", tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field("1+", tag=3, default=-1)
    last_producer_epoch: Int16 = field("1+", tag=4, default=-1)  # since KAFKA-20357
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: Array[PartitionsOfTopic] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field("1+", tag=2, default=0)


# Not Kafka's: the last batch of Spark queries. Readers that do not know this kind of record skip it.

DECIDED: Final = 30_000


@record(versions="0", flexible="none")
class DecidedKey:
    query: String


@record(versions="0", flexible="0+")
class DecidedValue:
    batch_id: Int64
    decided_timestamp_ms: Int64
    participants: Int32


def coordinator_key_in(key: bytes) -> str | None:
    """Returns the string hashed to choose a record's partition; None for unknown types. Raises MalformedRequest."""
    kind = kind_of(key)
    if kind == TRANSACTION:
        return coordinator_key(read_key(TransactionKey, key).transactional_id)
    return coordinator_key_of(read_key(DecidedKey, key).query) if kind == DECIDED else None
