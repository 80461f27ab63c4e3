"""Kafka API 20, DeleteTopics."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import NIL_UUID, Array, Int16, Int32, String, Uuid, field, request, response, struct


@struct
class DeleteTopicState:
    name: String | None = field(default=None)
    topic_id: Uuid


@request(ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: Array[DeleteTopicState] = field("6+", default=())
    topic_names: Array[String] = field("1-5", default=())
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    name: String | None = field(nullable="6+")
    topic_id: Uuid = field("6+", default=NIL_UUID)
    error_code: Int16
    error_message: String | None = field("5+", default=None)


@response(ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: Int32
    responses: Array[DeletableTopicResult]
