"""Why delivery is refused."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class NotHeld(PenstockError):
    """Whoever settles a message does not have it: it went to someone else."""

    code = ErrorCode.INVALID_RECORD_STATE


class AlreadyFinished(NotHeld):
    """The message is done, dead-lettered, purged or trimmed; or it was never looked at."""


class NotInFlight(NotHeld):
    """The message is where it was, but its time is up: there is nothing left to extend."""


class NeverReceived(NotHeld):
    """The message was never received (AWS: MessageNotInflight)."""


class OverLimit(PenstockError):
    """As many messages are in flight as may be (AWS: OverLimit)."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class InvalidReceipt(PenstockError):
    """A receipt handle that this cluster has not given (AWS: ReceiptHandleIsInvalid)."""

    code = ErrorCode.INVALID_REQUEST


class TooManyDeduplicationIds(PenstockError):
    """More deduplication ids came within five minutes than are remembered."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class TooManyGroups(PenstockError):
    """As many share groups have state on a partition as may."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class DamagedState(PenstockError):
    """A record of delivery state that this broker cannot read: it is damaged, or of a later version."""

    code = ErrorCode.CORRUPT_MESSAGE
