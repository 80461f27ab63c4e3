"""Penstock's API 30010, ShareState: reads or sets a share group's start offsets in partitions that a broker leads."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, Int64, String, Uuid, field, request, response, struct

DESCRIBE: Final = 0
PLACE: Final = 1
"""Action: set the share group's start offset."""
FORGET: Final = 2


@struct
class ShareStateTopicPartition:
    partition: Int32
    offset: Int64 = field(default=-1)
    """For the action PLACE: the start offset to set."""


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
    """Offset of the first unfinished message (share-partition start offset); -1 if the share group has no state."""
    leader_epoch: Int32 = field(default=-1)
    lag: Int64 = field(default=-1)
    """Number of messages that are not acknowledged yet, delivered or not; -1 if the share group has no state."""


@struct
class ShareStateTopicResult:
    topic_id: Uuid
    partitions: Array[ShareStatePartition]


@response(ApiKey.SHARE_STATE, versions="0", flexible="0+")
class ShareStateResponse:
    topics: Array[ShareStateTopicResult]
