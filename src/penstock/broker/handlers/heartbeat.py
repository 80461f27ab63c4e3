"""Heartbeat: keeps a member of a classic group alive."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.permissions import READ_GROUP
from penstock.broker.registry import handles
from penstock.foundation.errors import CoordinatorLoadInProgress, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(ApiKey.HEARTBEAT, READ_GROUP)
def heartbeat(request: HeartbeatRequest, call: Call, broker: Broker) -> None:
    def error_response(error: PenstockError) -> HeartbeatResponse:
        # While the coordinator loads its groups no session expires: succeed, as in Kafka.
        return HeartbeatResponse(error_code=0 if isinstance(error, CoordinatorLoadInProgress) else error.code)

    ask(broker.groups, request.group_id, request, call, error_response)
