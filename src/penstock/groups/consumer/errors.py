"""Errors of consumer groups (KIP-848) in addition to those in groups/errors.py."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class FencedMemberEpoch(PenstockError):
    """The request names another member epoch: the member has to give up all partitions and rejoin."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpoch(PenstockError):
    """An offset commit or fetch with an epoch that the member has left or has not reached."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnreleasedInstanceId(PenstockError):
    """The group.instance.id belongs to a member that has not left."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignor(PenstockError):
    code = ErrorCode.UNSUPPORTED_ASSIGNOR
