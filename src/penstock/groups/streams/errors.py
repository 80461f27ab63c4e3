"""Errors of streams groups (KIP-1071)."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class StreamsInvalidTopology(PenstockError):
    code = ErrorCode.STREAMS_INVALID_TOPOLOGY
