"""What goes in and out of queues, between the service and whoever serves it to clients."""

from typing import NamedTuple

from penstock.cluster.queues import MoveStatus as MoveStatus
from penstock.cluster.queues import MoveTask as MoveTask
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.queues.commands import AckType

Headers = tuple[tuple[str, bytes | None], ...]


class NewMessage(NamedTuple):
    """A message that is sent; whatever there was to check about it has been."""

    value: bytes
    key: bytes | None = None
    """The message group, in a FIFO queue."""
    headers: Headers = ()
    deduplication_id: str = ""
    """In a FIFO queue: one that was sent within five minutes is not sent again."""


class Sent(NamedTuple):
    """A message that is committed."""

    partition: int
    offset: int
    message_id: str
    is_duplicate: bool = False


class Delivered(NamedTuple):
    """A message in somebody's hands."""

    partition: int
    offset: int
    holder: str
    message_id: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    """Deliveries, this one included."""
    first_received_ms: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Headers
    is_repeat: bool = False
    """Whether the same delivery was answered before (AWS: ReceiveRequestAttemptId): then it is not undone."""


class MessageAck(NamedTuple):
    """What becomes of one message that somebody holds."""

    partition: int
    offset: int
    holder: str
    ack_type: AckType
    delay_ms: int = 0
    """Of RELEASE and RENEW: for how long from now on."""


class QueueUnavailable(PenstockError):
    """The partition's leader cannot be reached or is being replaced; try again. Whether it was done is not known."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class MoveTaskRunning(PenstockError):
    """A queue's messages are moved by one task at a time."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class NoSuchMoveTask(PenstockError):
    """There is no such task, or it has ended."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class NoRedriveSource(PenstockError):
    """A queue is no dead-letter queue of any other, so nobody can say where its messages came from."""

    code = ErrorCode.INVALID_REQUEST
