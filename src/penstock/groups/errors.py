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


class FencedMemberEpoch(PenstockError):
    """The request does not have the member's current epoch: the member has to drop its partitions and rejoin."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpoch(PenstockError):
    """An offset commit or fetch has a member epoch that is not the member's current epoch."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnreleasedInstanceId(PenstockError):
    """The group.instance.id belongs to another member, which has not left the group."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignor(PenstockError):
    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class StreamsInvalidTopology(PenstockError):
    code = ErrorCode.STREAMS_INVALID_TOPOLOGY
