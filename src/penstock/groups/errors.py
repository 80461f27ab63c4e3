"""Why the coordinator of a group refuses something."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class InvalidGroupId(PenstockError):
    code = ErrorCode.INVALID_GROUP_ID


class GroupIdNotFound(PenstockError):
    """There is no such group, or it is one of the other kind."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroup(PenstockError):
    """What is asked for can only be done to a group without members."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupMaxSizeReached(PenstockError):
    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class InvalidSessionTimeout(PenstockError):
    code = ErrorCode.INVALID_SESSION_TIMEOUT


class InconsistentGroupProtocol(PenstockError):
    """A member cannot work by any protocol that all others can work by, or by the one that was chosen."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class UnknownMemberId(PenstockError):
    """Whoever asks is no member, or no longer: it has to join as a new one."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class FencedInstanceId(PenstockError):
    """Another process has taken over the group.instance.id (KIP-345)."""

    code = ErrorCode.FENCED_INSTANCE_ID


class IllegalGeneration(PenstockError):
    """The member speaks of another generation of the group than the one that holds."""

    code = ErrorCode.ILLEGAL_GENERATION


class RebalanceInProgress(PenstockError):
    """The group is being put together anew: join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class UnsupportedVersion(PenstockError):
    code = ErrorCode.UNSUPPORTED_VERSION
