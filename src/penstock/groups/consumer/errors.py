"""Errors of consumer groups (KIP-848) in addition to those in groups/errors.py."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class FencedMemberEpoch(PenstockError):
    """The request has a member epoch other than the current one: the member has to drop its partitions and rejoin."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpoch(PenstockError):
    """An offset commit or fetch has a member epoch that is not the member's current epoch."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnreleasedInstanceId(PenstockError):
    """The group.instance.id belongs to another member, which has not left the group."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignor(PenstockError):
    code = ErrorCode.UNSUPPORTED_ASSIGNOR
