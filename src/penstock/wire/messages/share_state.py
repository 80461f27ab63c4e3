"""Penstock's API 30010, ShareState: where a share group is in partitions that a broker leads, or is to be."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, Int64, String, Uuid, field, request, response, struct

DESCRIBE: Final = 0
PLACE: Final = 1
"""The group begins at an offset, or begins there again."""
FORGET: Final = 2


@struct
class ShareStatePlace:
    partition: Int32
    offset: Int64 = field(default=-1)
    """Where the group is to begin."""


@struct
class ShareStateTopic:
    topic_id: Uuid
    partitions: Array[ShareStatePlace]


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
    """The first message that is not finished; -1: the group has never been there."""
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
