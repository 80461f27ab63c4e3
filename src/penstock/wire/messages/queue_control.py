"""Penstock's API 30005, QueueControl: counts, purges or deletes a queue's messages on one broker."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int32, Int64, String, Uuid, field, request, response, struct

COUNT: Final = 0
"""Action: count the queue's messages."""
PURGE: Final = 1
"""Action: discard all messages of the queue, as if they were acknowledged."""
FORGET: Final = 2
"""Action: remove the queue's delivery state, because the queue is deleted but its topic is not."""
STOP_WAITING: Final = 3
"""Action: remove the waiting receive request that has `ticket`, because its long poll has ended."""


@request(ApiKey.QUEUE_CONTROL, versions="0", flexible="0+")
class QueueControlRequest:
    action: Int8
    queue: String = field(default="")
    topic_id: Uuid
    node_id: Int32 = field(default=-1)
    ticket: Int64 = field(default=-1)


@struct
class QueuePartitionCounts:
    partition: Int32
    available: Int64
    in_flight: Int64
    delayed: Int64
    moving: Int64


@response(ApiKey.QUEUE_CONTROL, versions="0", flexible="0+")
class QueueControlResponse:
    error: String = field(default="")
    error_message: String = field(default="")
    partitions: Array[QueuePartitionCounts] = field(default=())
    """Message counts of those partitions led by this broker on which the action succeeded."""
