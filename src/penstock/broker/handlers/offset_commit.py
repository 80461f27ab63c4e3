"""OffsetCommit: commits the offsets of a consumer group."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.permissions import split_topics
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.groups.offsets.commit_responses import commit_response, same_code
from penstock.wire.keys import ApiKey
from penstock.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.wire.schema import with_field


@handles(ApiKey.OFFSET_COMMIT)
def offset_commit(request: OffsetCommitRequest, call: Call, broker: Broker) -> None:
    def error_response(error: PenstockError) -> OffsetCommitResponse:
        return commit_response(request, same_code(error.code))

    if call.authorizer is not None:
        if not call.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            call.answer(commit_response(request, same_code(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
            return
        allowed, denied = split_topics(request.topics, Operation.READ, call, broker)
        if denied:
            refused = commit_response(
                with_field(request, "topics", denied), same_code(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
            call.amend = lambda response: with_field(response, "topics", [*response.topics, *refused.topics])
            request = with_field(request, "topics", allowed)
    ask(broker.groups, request.group_id, request, call, error_response)
