"""SyncGroup: returns a member's assignment in a classic group; the leader sends the assignments of all members."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_cancellable
from penstock.broker.permissions import READ_GROUP
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@handles(ApiKey.SYNC_GROUP, READ_GROUP)
def sync_group(request: SyncGroupRequest, call: Call, broker: Broker) -> None:
    def error_response(error: PenstockError) -> SyncGroupResponse:
        return SyncGroupResponse(error_code=error.code, assignment=b"")

    ask_cancellable(broker.groups, request.group_id, request, call, error_response)
