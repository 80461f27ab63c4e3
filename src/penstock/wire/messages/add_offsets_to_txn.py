"""Kafka API 25, AddOffsetsToTxn."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Int16, Int32, Int64, String, request, response


@request(ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@response(ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16
