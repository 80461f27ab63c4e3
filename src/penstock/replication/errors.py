"""What replicas refuse."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class FencedLeaderEpoch(PenstockError):
    """The client knows an older leader than this one."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(PenstockError):
    """The client knows a newer leader than this one."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicas(PenstockError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS
