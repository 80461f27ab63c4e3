"""Kafka API 66, ListTransactions."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, Int64, String, field, request, response, struct


@request(ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: Array[String]
    producer_id_filters: Array[Int64]
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: String | None = field("2+", default=None)


@struct
class TransactionState:
    transactional_id: String
    producer_id: Int64
    transaction_state: String


@response(ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: Array[String]
    transaction_states: Array[TransactionState]
