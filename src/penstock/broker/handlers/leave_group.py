"""LeaveGroup: removes members from a classic group, which then rebalances."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.permissions import READ_GROUP
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


@handles(ApiKey.LEAVE_GROUP, READ_GROUP)
def leave_group(request: LeaveGroupRequest, call: Call, broker: Broker) -> None:
    def error_response(error: PenstockError) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=error.code)

    ask(broker.groups, request.group_id, request, call, error_response)
