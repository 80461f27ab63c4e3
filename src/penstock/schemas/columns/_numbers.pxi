# Part of _kernel.pyx: rows of bytes columns, and decimals.

cdef extern from *:
    """
    typedef __int128 penstock_int128;
    typedef unsigned __int128 penstock_uint128;
    """
    ctypedef long long int128 "penstock_int128"  # Cython need only know that these are integers
    ctypedef unsigned long long uint128 "penstock_uint128"

cdef enum:
    DIGITS_MAX = 38  # of Arrow's and Spark's decimals
    DECIMAL_BYTES = 16

cdef int128 POWERS_OF_TEN[DIGITS_MAX + 1]


cdef void compute_powers() noexcept:
    cdef int digits
    POWERS_OF_TEN[0] = 1
    for digits in range(1, DIGITS_MAX + 1):
        POWERS_OF_TEN[digits] = POWERS_OF_TEN[digits - 1] * 10


compute_powers()


cdef inline bint has_digits(int128 value, int64_t precision) noexcept nogil:
    """Whether an unscaled decimal has no more than so many digits."""
    return -POWERS_OF_TEN[precision] < value and value < POWERS_OF_TEN[precision]


cdef bint from_big_endian(const uint8_t* at, int64_t size, int128* value) noexcept nogil:
    """Reads a number in two's complement; returns whether it fits into 128 bits."""
    cdef uint8_t fill = 0xFF if size and at[0] & 0x80 else 0
    cdef uint64_t low = 0, high = 0
    cdef int64_t place
    while size > DECIMAL_BYTES:
        if at[0] != fill or (size == DECIMAL_BYTES + 1 and (at[1] & 0x80) != (fill & 0x80)):
            return False
        at += 1
        size -= 1
    if fill:
        low = high = <uint64_t>-1
    for place in range(size):
        high = high << 8 | low >> 56
        low = low << 8 | at[place]
    value[0] = <int128>(<uint128>high << 64 | low)
    return True


@cython.final
cdef class BytesRows:
    """The values of a `records.layout.BinaryColumn`."""

    cdef View offsets, data, validity
    cdef Py_ssize_t offset

    def __cinit__(self, column, Py_ssize_t count):
        self.offsets, self.data, self.validity = View(column.offsets), View(column.data), View(column.validity)
        self.offset = column.offset
        if self.offset < 0 or count and (self.offset + count + 1) * <Py_ssize_t>sizeof(int32_t) > self.offsets.size:
            raise ValueError(f"{count} rows from {self.offset} on: there are {self.offsets.size} bytes of offsets")
        if column.validity is not None and self.offset + count > 8 * self.validity.size:
            raise ValueError(f"{count} rows from {self.offset} on: there are {self.validity.size} bytes of validity")

    cdef inline int64_t row(self, Py_ssize_t row, const uint8_t** start) noexcept nogil:
        """Sets the start of a value and returns its size; -1 if it is null, or not within the data."""
        cdef const int32_t* offset = <const int32_t*>self.offsets.start + self.offset + row
        row += self.offset
        if self.validity.start is not NULL and not self.validity.start[row >> 3] >> (row & 7) & 1:
            return -1
        if offset[0] < 0 or offset[1] < offset[0] or offset[1] > self.data.size:
            return -1
        start[0] = self.data.start + offset[0]
        return offset[1] - offset[0]
