# Part of _columns.pyx: groups rows of Arrow columns by partition, and encodes the rows of one partition step by step.

cdef uint32_t MURMUR_M = 0x5BD1E995
cdef uint32_t MURMUR_SEED = 0x9747B28C


cdef uint32_t murmur2(const uint8_t* data, int32_t length) noexcept nogil:
    """Kafka's 32-bit MurmurHash2; see client/partitioner.py."""
    cdef uint32_t h = MURMUR_SEED ^ <uint32_t>length, k, last = 0
    cdef int32_t at = 0, left
    while length - at >= 4:
        k = data[at] | <uint32_t>data[at + 1] << 8 | <uint32_t>data[at + 2] << 16 | <uint32_t>data[at + 3] << 24
        k *= MURMUR_M
        k ^= k >> 24
        h = h * MURMUR_M ^ k * MURMUR_M
        at += 4
    left = length - at
    if left > 0:
        if left > 2:
            last |= <uint32_t>data[at + 2] << 16
        if left > 1:
            last |= <uint32_t>data[at + 1] << 8
        h = (h ^ (last | data[at])) * MURMUR_M
    h = (h ^ h >> 13) * MURMUR_M
    return h ^ h >> 15


@cython.final
cdef class Numbers:
    """A nullable column of int32 in Arrow's layout; None makes a column of nulls."""

    cdef View data, validity
    cdef Py_ssize_t first

    def __cinit__(self, column):
        if column is not None:
            self.data = View(column.data)
            self.validity = None if column.validity is None else View(column.validity)
            self.first = column.offset

    cdef inline int read(self, Py_ssize_t row, int32_t* value) except -1:
        """Reads the value of a row; returns 0 if it is null."""
        if self.data is None:
            return 0
        row += self.first
        if row < 0 or row >= self.data.size // <Py_ssize_t>sizeof(int32_t):
            raise ValueError(f"row {row} of a column of {self.data.size // sizeof(int32_t)}")
        if self.validity is not None:
            if row >= 8 * self.validity.size:
                raise ValueError(f"row {row} of a validity bitmap of {self.validity.size} bytes")
            if not self.validity.start[row >> 3] >> (row & 7) & 1:
                return 0
        value[0] = (<const int32_t*>self.data.start)[row]
        return 1


def spread(Py_ssize_t count, rows, key, wanted, int32_t partitions, int32_t keyless):
    cdef View chosen = None if rows is None else View(rows)
    cdef Rows keys = Rows(key, None if key is None else key.data)
    cdef Numbers numbers = Numbers(wanted)
    cdef Span span
    cdef Py_ssize_t at
    cdef int32_t place, total = 0, size
    if chosen is not None:
        count = chosen.size // <Py_ssize_t>sizeof(int32_t)
    if not 0 <= keyless < partitions or not 0 <= count <= ARROW_BYTES_MAX:
        raise ValueError(f"{count} rows for {partitions} partitions, those without a key for {keyless}")
    places_block = PyBytes_FromStringAndSize(NULL, count * sizeof(int32_t))
    sorted_block = PyBytes_FromStringAndSize(NULL, count * sizeof(int32_t))
    ends_block = PyBytes_FromStringAndSize(NULL, partitions * sizeof(int32_t))
    cdef int32_t* places = <int32_t*>PyBytes_AS_STRING(places_block)
    cdef int32_t* sorted_rows = <int32_t*>PyBytes_AS_STRING(sorted_block)
    cdef int32_t* ends = <int32_t*>PyBytes_AS_STRING(ends_block)
    cdef const int32_t* row = NULL
    if chosen is not None:
        row = <const int32_t*>chosen.start
    memset(ends, 0, partitions * sizeof(int32_t))
    for at in range(count):
        if numbers.read(at if row == NULL else row[at], &place):
            if not 0 <= place < partitions:
                raise InvalidRecord(f"a row asks for partition {place} of {partitions}")
        else:
            keys.read(at if row == NULL else row[at], &span)
            place = keyless
            if span.length >= 0:
                place = <int32_t>((murmur2(keys.data.start + span.at, span.length) & 0x7FFFFFFF) % <uint32_t>partitions)
        places[at] = place
        ends[place] += 1
    for place in range(partitions):
        size = ends[place]
        ends[place] = total
        total += size
    for at in range(count):
        place = places[at]
        sorted_rows[ends[place]] = <int32_t>at if row == NULL else row[at]
        ends[place] += 1
    return memoryview(sorted_block).cast("i"), memoryview(ends_block).cast("i")


def encode_rows(
    rows,
    Py_ssize_t start,
    Py_ssize_t end,
    Py_ssize_t first_delta,
    int64_t room_bytes,
    key,
    value,
    timestamps,
    int64_t base_timestamp,
    headers,
):
    cdef Encoder encoder = Encoder(key, value, timestamps, base_timestamp, headers)
    cdef View chosen = View(rows)
    cdef const int32_t* row = <const int32_t*>chosen.start
    cdef Py_ssize_t times = -1 if timestamps is None else encoder.times.size // <Py_ssize_t>sizeof(int64_t)
    cdef int64_t max_timestamp = INT64_MIN, total = 0, size
    cdef Py_ssize_t taken = 0, at
    cdef uint8_t* out
    if not 0 <= start < end <= chosen.size // <Py_ssize_t>sizeof(int32_t) or first_delta < 0:
        raise ValueError(f"rows {start} to {end} are none, or more than there are")
    room_bytes = min(room_bytes, BODY_BYTES_MAX)
    sizes_block = PyBytes_FromStringAndSize(NULL, (end - start) * sizeof(int32_t))
    cdef int32_t* sizes = <int32_t*>PyBytes_AS_STRING(sizes_block)
    for at in range(start, end):
        if row[at] < 0 or (times >= 0 and row[at] >= times):
            raise ValueError(f"there is no row {row[at]}")
        size = encoder.measure(row[at], first_delta + taken)
        if total + varint_bytes(size) + size > room_bytes:
            break
        total += varint_bytes(size) + size
        sizes[taken] = <int32_t>size
        max_timestamp = max(max_timestamp, encoder.timestamp(row[at]))
        taken += 1
    block = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t*>PyBytes_AS_STRING(block)
    for at in range(taken):
        out = put_varint(out, sizes[at])
        out = encoder.put(out, row[start + at], first_delta + at)
    return block, taken, max_timestamp
