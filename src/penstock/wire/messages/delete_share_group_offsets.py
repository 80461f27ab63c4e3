"""Kafka API 92, DeleteShareGroupOffsets."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, String, Uuid, field, request, response, struct


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: String


@request(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: String
    topics: Array[DeleteShareGroupOffsetsRequestTopic]


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: String
    topic_id: Uuid
    error_code: Int16
    error_message: String | None = field(default=None)


@response(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    responses: Array[DeleteShareGroupOffsetsResponseTopic]
