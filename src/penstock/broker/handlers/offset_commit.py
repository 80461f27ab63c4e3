"""OffsetCommit: commits the offsets of a consumer group."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.groups.offsets.commit_responses import commit_response, same_code
from penstock.wire.keys import ApiKey
from penstock.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


@handles(ApiKey.OFFSET_COMMIT)
def offset_commit(request: OffsetCommitRequest, call: Call, broker: Broker) -> None:
    def error_response(error: PenstockError) -> OffsetCommitResponse:
        return commit_response(request, same_code(error.code))

    ask(broker.groups, request.group_id, request, call, error_response)
