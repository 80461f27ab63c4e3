"""Messages, acknowledgements and errors that pass between the queue service and the SQS front end."""

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
    """The message group, in a FIFO queue."""
    headers: Headers = ()
    deduplication_id: str = ""
    """In a FIFO queue: a message with the same id sent within five minutes is not sent again."""


class Sent(NamedTuple):
    """A message that is committed."""

    partition: int
    offset: int
    message_id: str
    is_duplicate: bool = False


class Delivered(NamedTuple):
    """A message in flight, as delivered to a receiver."""

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
    """Whether this repeats an earlier response (AWS: ReceiveRequestAttemptId): then the delivery is never undone."""


class MessageAck(NamedTuple):
    """The acknowledgement of one message in flight."""

    partition: int
    offset: int
    holder: str
    ack_type: AckType
    delay_ms: int = 0
    """For RELEASE and RENEW: how long from now."""


class QueueUnavailable(PenstockError):
    """The partition's leader is unreachable or changing; try again. The request may have taken effect."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class MoveTaskRunning(PenstockError):
    """The queue already has a running move task; only one is allowed."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class NoSuchMoveTask(PenstockError):
    """No such move task is running."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class NoRedriveSource(PenstockError):
    """The queue is not the dead-letter queue of any other, so its messages have no source to return to."""

    code = ErrorCode.INVALID_REQUEST
