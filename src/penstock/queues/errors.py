"""Errors of delivery: receipts, limits and damaged state."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class NotHeld(PenstockError):
    """The message has since been delivered to another consumer."""

    code = ErrorCode.INVALID_RECORD_STATE


class AlreadyFinished(NotHeld):
    """The message cannot be acknowledged: it was already deleted, moved, purged or trimmed, or never delivered."""


class NotInFlight(NotHeld):
    """The visibility timeout of the message has expired."""


class NeverReceived(NotHeld):
    """The message was never received (AWS: MessageNotInflight)."""


class OverLimit(PenstockError):
    """The queue's limit of in-flight messages is reached (AWS: OverLimit)."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class InvalidReceipt(PenstockError):
    """The receipt handle was not issued by this cluster (AWS: ReceiptHandleIsInvalid)."""

    code = ErrorCode.INVALID_REQUEST


class TooManyDeduplicationIds(PenstockError):
    """More deduplication ids arrived within five minutes than fit into memory."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class TooManyGroups(PenstockError):
    """The partition has reached its limit of share groups with delivery state."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class DamagedState(PenstockError):
    """A record of delivery state is damaged, or was written by a later version."""

    code = ErrorCode.CORRUPT_MESSAGE
