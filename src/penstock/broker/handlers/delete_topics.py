"""DeleteTopics: deletes topics and views (filtered virtual topics) by name or id. Internal topics are refused.

Deleting a view does not affect its source topic.
"""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.cluster.administration import delete_topic, drop_view
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError, TopicAuthorizationFailed
from penstock.wire.keys import ApiKey
from penstock.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.wire.schema import NIL_UUID


class DeletionDisabled(PenstockError):
    code = ErrorCode.TOPIC_DELETION_DISABLED


@handles(ApiKey.DELETE_TOPICS)
async def delete_topics(request: DeleteTopicsRequest, call: Call, broker: Broker) -> DeleteTopicsResponse:
    wanted = [*request.topics, *(DeleteTopicState(name=name, topic_id=NIL_UUID) for name in request.topic_names)]
    return DeleteTopicsResponse(
        throttle_time_ms=0, responses=[await _delete(topic, call, broker) for topic in wanted]
    )


async def _delete(wanted: DeleteTopicState, call: Call, broker: Broker) -> DeletableTopicResult:
    name, topic_id = wanted.name, wanted.topic_id
    try:
        if not broker.configs["delete.topic.enable"]:
            raise DeletionDisabled("topics may not be deleted: delete.topic.enable is false")
        if name and topic_id != NIL_UUID:
            raise InvalidRequest("the request has both topic name and id; give one of them")
        if name:
            call.check(Operation.DELETE, ResourceType.TOPIC, name)
        topic = broker.shown_topic(name, topic_id)
        if not call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            raise TopicAuthorizationFailed("no permission for this topic")  # without its name
        call.check(Operation.DELETE, ResourceType.TOPIC, topic.name)
        name, topic_id = topic.name, topic.topic_id
        if topic.view is not None:
            await drop_view(broker.metadata, topic.view, "deleted")
        else:
            await delete_topic(broker.metadata, topic_id)
    except PenstockError as error:
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=0)
