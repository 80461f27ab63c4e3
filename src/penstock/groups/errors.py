"""Errors of the group coordinator with their Kafka error codes."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class InvalidGroupId(PenstockError):
    code = ErrorCode.INVALID_GROUP_ID


class GroupIdNotFound(PenstockError):
    """The group does not exist, or it is not of the kind that the request needs."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroup(PenstockError):
    """The operation requires a group without members."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupMaxSizeReached(PenstockError):
    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class InvalidSessionTimeout(PenstockError):
    code = ErrorCode.INVALID_SESSION_TIMEOUT


class InconsistentGroupProtocol(PenstockError):
    """The member supports no protocol that all other members support, or does not name the chosen protocol."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class UnknownMemberId(PenstockError):
    """The client is not, or no longer, a member of the group; it has to join as a new member."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class FencedInstanceId(PenstockError):
    """Another process has joined with the same group.instance.id (KIP-345)."""

    code = ErrorCode.FENCED_INSTANCE_ID


class IllegalGeneration(PenstockError):
    """The request has a generation other than the current generation of the group."""

    code = ErrorCode.ILLEGAL_GENERATION


class RebalanceInProgress(PenstockError):
    """The group is rebalancing; the member has to rejoin."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class UnsupportedVersion(PenstockError):
    code = ErrorCode.UNSUPPORTED_VERSION
