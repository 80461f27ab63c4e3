"""Messages, acknowledgements and errors that pass between the queue service and the SQS API."""

from typing import NamedTuple

from penstock.cluster.queues import MoveStatus as MoveStatus
from penstock.cluster.queues import MoveTask as MoveTask
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.queues.commands import AckType

Headers = tuple[tuple[str, bytes | None], ...]


class NewMessage(NamedTuple):
    """A validated message to send."""

    value: bytes
    key: bytes | None = None
    """In a FIFO queue, the message group, which is stored as the record's key; else None."""
    headers: Headers = ()
    deduplication_id: str = ""
    """Deduplication id in a FIFO queue: another message with this id is not stored within five minutes."""


class Sent(NamedTuple):
    """The result of sending one message, once it is committed."""

    partition: int
    offset: int
    message_id: str
    is_duplicate: bool = False


class Delivered(NamedTuple):
    """An in-flight message, as delivered to a receiver."""

    partition: int
    offset: int
    holder: str
    message_id: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    """Number of deliveries of the message, including this delivery."""
    first_received_ms: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Headers
    is_repeat: bool = False
    """Whether the message is part of a repeated response (ReceiveRequestAttemptId); its delivery is never undone."""


class MessageAck(NamedTuple):
    """The acknowledgement of one in-flight message."""

    partition: int
    offset: int
    holder: str
    ack_type: AckType
    delay_ms: int = 0
    """For RELEASE and RENEW: time, in milliseconds from now, until the message becomes available."""


class QueueUnavailable(PenstockError):
    """The partition's leader is unreachable or changing; retry. The failed request may have taken effect."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class MoveTaskRunning(PenstockError):
    """The queue already has a running move task; only one is allowed."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class NoSuchMoveTask(PenstockError):
    """No move task with this handle is running."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class NoRedriveSource(PenstockError):
    """The queue is not the dead-letter queue of any queue, so its messages have no source to return to."""

    code = ErrorCode.INVALID_REQUEST
