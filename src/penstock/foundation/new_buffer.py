"""Buffers that are not filled with zeros first."""

import ctypes
from typing import Final, cast

_SMALL_BYTES_MAX: Final = 4096
_make = ctypes.pythonapi.PyByteArray_FromStringAndSize
_make.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_make.restype = ctypes.py_object


def new_buffer(size: int) -> bytearray:
    """Returns a bytearray with arbitrary content, for callers that overwrite all of it before they use it.

    `bytearray(size)` writes zeros: for megabytes, that takes as long as receiving them.

    >>> len(new_buffer(100_000))
    100000
    """
    return bytearray(size) if size <= _SMALL_BYTES_MAX else cast(bytearray, _make(None, size))
