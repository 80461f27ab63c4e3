"""What goes wrong between Spark and a cluster, told so that a person can act on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


class BadOption(PenstockError):
    """An option that does not exist, cannot be what it was set to, or does not go with another."""

    code = ErrorCode.INVALID_CONFIG


class BadSchema(PenstockError):
    """Columns that the source does not have."""

    code = ErrorCode.INVALID_CONFIG


class BadCheckpoint(PenstockError):
    """A checkpoint that is not of this query."""

    code = ErrorCode.INVALID_CONFIG


class DataLost(PenstockError):
    """What was to be read is not there any more, and `failOnDataLoss` is true."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class ReadStalled(PenstockError):
    """What should be there does not come."""

    code = ErrorCode.REQUEST_TIMED_OUT


@contextmanager
def plainly() -> Iterator[None]:
    """Around everything that Spark calls: what we raise on purpose reaches the person as its message alone.

    Spark sends the traceback of its worker processes along, unless it is told to hide it. The process ends with
    the error, so that nothing else is hidden.
    """
    try:
        yield
    except PenstockError:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise
