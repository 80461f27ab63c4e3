"""Kafka API 26, EndTxn."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Bool, Int16, Int32, Int64, String, field, request, response


@request(ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@response(ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field("5+", default=-1)
    producer_epoch: Int16 = field("5+", default=-1)
