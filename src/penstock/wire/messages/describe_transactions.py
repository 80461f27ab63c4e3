"""Kafka API 65, DescribeTransactions."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, Int64, String, request, response, struct


@request(ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: Array[String]


@struct
class TopicData:
    topic: String
    partitions: Array[Int32]


@struct
class TransactionState:
    error_code: Int16
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: Array[TopicData]


@response(ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: Int32
    transaction_states: Array[TransactionState]
