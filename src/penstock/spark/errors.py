"""Errors of the Spark data source, and the context manager that hides their tracebacks from users."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


class SparkMissing(PenstockError):
    """PySpark, or a package that it needs, is not installed."""


class SparkFailed(PenstockError):
    """Spark did not start, or its server cannot be used."""


class BadOption(PenstockError):
    """An option does not exist, has an invalid value, or conflicts with another option."""

    code = ErrorCode.INVALID_CONFIG


class BadSchema(PenstockError):
    """The schema has columns or types that the data source does not support."""

    code = ErrorCode.INVALID_CONFIG


class BadCheckpoint(PenstockError):
    """The checkpoint belongs to another query."""

    code = ErrorCode.INVALID_CONFIG


class DataLost(PenstockError):
    """Records that were to be read no longer exist, and `failOnDataLoss` is true."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class ReadStalled(PenstockError):
    """Records that should exist were not delivered within the poll timeout."""

    code = ErrorCode.REQUEST_TIMED_OUT


@contextmanager
def hide_tracebacks() -> Iterator[None]:
    """Context for methods that Spark calls: users see only the message of a PenstockError, not its traceback.

    Sets the environment variable that makes Spark omit the traceback of its Python worker process. The process ends
    with the error, so no other traceback is hidden.
    """
    try:
        yield
    except PenstockError:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise
