"""Kafka API 22, InitProducerId."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Bool, Int16, Int32, Int64, String, field, request, response


@request(ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable_2pc: Bool = field("6+", default=False)
    keep_prepared_txn: Bool = field("6+", default=False)


@response(ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)
