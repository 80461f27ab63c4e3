"""Why a consumer group refuses something (KIP-848), besides what errors.py has for groups of both kinds."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class FencedMemberEpoch(PenstockError):
    """The member speaks of an epoch that is not its own: it gives up all partitions and joins again."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpoch(PenstockError):
    """A commit or a fetch of offsets in an epoch that the member has left, or has not reached."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnreleasedInstanceId(PenstockError):
    """The group.instance.id belongs to a member that has not left."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignor(PenstockError):
    code = ErrorCode.UNSUPPORTED_ASSIGNOR
