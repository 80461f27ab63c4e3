"""Penstock's API 30005, QueueControl: counts, purges or deletes a queue's messages on one broker."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int32, Int64, String, Uuid, field, request, response, struct

COUNT: Final = 0
"""Count the messages."""
PURGE: Final = 1
"""Finish all messages."""
FORGET: Final = 2
"""The queue is deleted, its topic is not: remove its delivery state."""
STOP_WAITING: Final = 3
"""A long poll has ended: remove the waiting request of a ticket."""


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
    """The partitions that this broker leads and has handled."""
