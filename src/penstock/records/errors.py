"""Errors of record batches that only this package raises."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class UnsupportedMessageFormat(PenstockError):
    """A message set of format v0 or v1; only record batches of format v2 are accepted."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
