"""OffsetDelete: deletes committed offsets of topics that the group is not subscribed to."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


@handles(ApiKey.OFFSET_DELETE)
def offset_delete(request: OffsetDeleteRequest, call: Call, broker: Broker) -> None:
    def error_response(error: PenstockError) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=())

    ask(broker.groups, request.group_id, request, call, error_response)
