"""InitProducerId: an identity for an idempotent producer."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@handles(ApiKey.INIT_PRODUCER_ID, versions=range(6))
async def init_producer_id(request: InitProducerIdRequest, call: Call, broker: Broker) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        # Transactions have no coordinator yet; this is what Kafka says while it has none.
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1
        )
    # An idempotent producer that asks again, after a fatal error, begins under a new id (KIP-360).
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=0, producer_id=await broker.producer_ids.take(), producer_epoch=0
    )
