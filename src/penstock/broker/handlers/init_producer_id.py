"""InitProducerId: returns a new producer id or, for a transactional id, its producer id with the next epoch."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import command
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import (
    ClusterAuthorizationFailed,
    NotAuthorized,
    PenstockError,
    TransactionalIdAuthorizationFailed,
)
from penstock.transactions.commands import InitProducer
from penstock.wire.keys import ApiKey
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@handles(ApiKey.INIT_PRODUCER_ID, versions=range(6))
async def init_producer_id(
    request: InitProducerIdRequest, call: Call, broker: Broker
) -> InitProducerIdResponse | None:
    denied = _denied(request, call)
    if denied is not None:
        return _error_response(denied)
    try:
        producer_id = await broker.producer_ids.take()
    except PenstockError:
        # The store cannot be reached. As in Kafka: any other error is fatal to older clients.
        return InitProducerIdResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            producer_id=-1,
            producer_epoch=-1,
        )
    if request.transactional_id is None:
        # An idempotent producer that asks again after a fatal error gets a new id (KIP-360).
        return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)

    def answer(value: InitProducerIdResponse | PenstockError) -> None:
        if isinstance(value, PenstockError):
            value = _error_response(value)
        call.answer(value)

    asked = InitProducer(request=command(request, call), fresh_producer_id=producer_id)
    broker.transactions.submit(request.transactional_id, asked, answer)
    return None


def _denied(request: InitProducerIdRequest, call: Call) -> NotAuthorized | None:
    """Returns the error if the client may not use the transactional id or, without one, may not produce at all."""
    if request.transactional_id is not None:
        if call.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return None
        return TransactionalIdAuthorizationFailed(f"{call.principal} may not use this transactional id")
    if call.allows_in_cluster(Operation.IDEMPOTENT_WRITE, audited=False) or call.allows_any(
        Operation.WRITE, ResourceType.TOPIC
    ):
        return None
    return ClusterAuthorizationFailed(f"{call.principal} may not write to any topic")


def _error_response(error: PenstockError) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=error.code, producer_id=-1, producer_epoch=-1)
