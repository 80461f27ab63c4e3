"""JoinGroup: adds a member to a classic group; answered when the join phase of the rebalance ends."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_cancellable
from penstock.broker.permissions import READ_GROUP
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


@handles(ApiKey.JOIN_GROUP, READ_GROUP)
def join_group(request: JoinGroupRequest, call: Call, broker: Broker) -> None:
    def error_response(error: PenstockError) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=error.code,
            protocol_name=None if call.version >= 7 else "",
            leader="",
            member_id=request.member_id,
            members=(),
        )

    ask_cancellable(broker.groups, request.group_id, request, call, error_response)
