"""Penstock's API 30010, ShareState: reads or sets a share group's start offsets in partitions that a broker leads."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, Int64, String, Uuid, field, request, response, struct

DESCRIBE: Final = 0
PLACE: Final = 1
"""Set the group's start offset."""
FORGET: Final = 2


@struct
class ShareStateTopicPartition:
    partition: Int32
    offset: Int64 = field(default=-1)
    """The start offset to set."""


@struct
class ShareStateTopic:
    topic_id: Uuid
    partitions: Array[ShareStateTopicPartition]


@request(ApiKey.SHARE_STATE, versions="0", flexible="0+")
class ShareStateRequest:
    action: Int8
    group_id: String
    topics: Array[ShareStateTopic]


@struct
class ShareStatePartition:
    partition: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    start_offset: Int64 = field(default=-1)
    """The first message that is not finished (share-partition start offset); -1: the group has no state there."""
    leader_epoch: Int32 = field(default=-1)
    lag: Int64 = field(default=-1)
    """Messages that are not finished."""


@struct
class ShareStateTopicResult:
    topic_id: Uuid
    partitions: Array[ShareStatePartition]


@response(ApiKey.SHARE_STATE, versions="0", flexible="0+")
class ShareStateResponse:
    topics: Array[ShareStateTopicResult]
