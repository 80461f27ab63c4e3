"""Lets a test set the wall clock of a broker process that is started with this folder on PYTHONPATH.

PENSTOCK_TEST_CLOCK names a file with the shift in nanoseconds, as eight bytes. The steady clock is left alone.
"""

import mmap
import os
import struct
import time

with open(os.environ["PENSTOCK_TEST_CLOCK"], "rb") as _file:
    _shift = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
_true_time_ns = time.time_ns


def _time_ns():
    return _true_time_ns() + struct.unpack("<q", _shift[:8])[0]


time.time_ns = _time_ns
time.time = lambda: _time_ns() / 1e9
