# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The per-value loops of column codecs, compiled: the counterpart of `_kernel_pure.py`, documented in `kernel.Kernel`.

It reads untrusted bytes. Every read goes through a Cursor, which never passes its end. `_builders.pxi` has the columns
that decoders fill.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

from array import array

from penstock.foundation.errors import MessageTooLarge
from penstock.schemas.columns.layout import BadRow, FilledColumn
from penstock.schemas.columns.sources import source_columns

REVISION = 2  # see kernel.py


@cython.final
cdef class View:
    """A buffer view that keeps its owner's bytes alive. `None` is a view of no bytes."""

    cdef Py_buffer buffer
    cdef const uint8_t* start
    cdef Py_ssize_t size
    cdef bint is_held

    def __cinit__(self, owner):
        self.is_held = False
        self.start = NULL
        self.size = 0
        if owner is not None:
            PyObject_GetBuffer(owner, &self.buffer, PyBUF_SIMPLE)
            self.is_held = True
            self.start = <const uint8_t*>self.buffer.buf
            self.size = self.buffer.len

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.buffer)


include "_builders.pxi"
include "_numbers.pxi"
include "_avro_decode.pxi"
include "_avro_encode.pxi"
include "_protobuf_decode.pxi"
include "_protobuf_encode.pxi"
