# Part of _columns.pyx: copies records out of a body, and encodes records from Arrow columns.


@cython.final
cdef class Slices:
    """Positions and lengths in a body; a negative length is null."""

    cdef View body, at, length
    cdef const int32_t* starts
    cdef const int32_t* sizes
    cdef Py_ssize_t rows

    def __cinit__(self, body, at, length):
        self.body, self.at, self.length = View(body), View(at), View(length)
        self.starts = <const int32_t*>self.at.start
        self.sizes = <const int32_t*>self.length.start
        self.rows = self.at.size // sizeof(int32_t)
        if self.length.size != self.at.size:
            raise ValueError(f"{self.at.size} bytes of positions, {self.length.size} of lengths")

    cdef inline int check(self, Py_ssize_t row) except -1:
        cdef int64_t start = self.starts[row], size = self.sizes[row]
        if start < 0 or size < 0 or size > self.body.size - start:
            raise ValueError(f"{size} bytes at {start} lie outside of {self.body.size}")
        return 0


def gather(parts):
    cdef list columns = [Slices(body, at, length) for body, at, length in parts]
    cdef Slices slices
    cdef Py_ssize_t row, rows = 0, nulls = 0, out = 0
    cdef int64_t total = 0
    for slices in columns:
        rows += slices.rows
        for row in range(slices.rows):
            if slices.sizes[row] >= 0:
                slices.check(row)
                total += slices.sizes[row]
    if total > ARROW_BYTES_MAX:
        raise MessageTooLarge(f"column of {total} bytes: Arrow's offsets reach {ARROW_BYTES_MAX}")
    offsets_block = PyBytes_FromStringAndSize(NULL, (rows + 1) * sizeof(int32_t))
    data_block = PyBytes_FromStringAndSize(NULL, total)
    validity_block = PyBytes_FromStringAndSize(NULL, (rows + 7) // 8)
    cdef int32_t* offsets = <int32_t*>PyBytes_AS_STRING(offsets_block)
    cdef char* data = PyBytes_AS_STRING(data_block)
    cdef uint8_t* validity = <uint8_t*>PyBytes_AS_STRING(validity_block)
    memset(validity, 0, (rows + 7) // 8)
    offsets[0] = 0
    for slices in columns:
        for row in range(slices.rows):
            offsets[out + 1] = offsets[out]
            if slices.sizes[row] < 0:
                nulls += 1
            else:
                memcpy(data + offsets[out], slices.body.start + slices.starts[row], slices.sizes[row])
                offsets[out + 1] += slices.sizes[row]
                validity[out >> 3] |= 1 << (out & 7)
            out += 1
    return offsets_block, data_block, validity_block, nulls


def select(body, at, length, timestamps, mask):
    cdef Slices records = Slices(body, at, length)
    cdef View times = View(timestamps), chosen = View(mask)
    cdef const int64_t* timestamp = <const int64_t*>times.start
    cdef int64_t max_timestamp = INT64_MIN, total = 0
    cdef Py_ssize_t row, count = 0, last = -1
    cdef char* out
    if chosen.size != records.rows or times.size != records.rows * <Py_ssize_t>sizeof(int64_t):
        raise ValueError(f"mask of {chosen.size} bytes for {records.rows} records")
    for row in range(records.rows):
        if chosen.start[row]:
            records.check(row)
            total += records.sizes[row]
            max_timestamp = max(max_timestamp, timestamp[row])
            count += 1
            last = row
    block = PyBytes_FromStringAndSize(NULL, total)
    out = PyBytes_AS_STRING(block)
    for row in range(last + 1):
        if chosen.start[row]:
            memcpy(out, records.body.start + records.starts[row], records.sizes[row])
            out += records.sizes[row]
    return block, count, last, max_timestamp


cdef struct Span:
    int32_t at
    int32_t length  # -1: null


@cython.final
cdef class Rows:
    """A nullable column of spans in Arrow's layout; None makes a column of nulls."""

    cdef View offsets, validity, data
    cdef Py_ssize_t first, rows

    def __cinit__(self, column, data):
        if column is not None:
            self.offsets = View(column.offsets)
            self.rows = self.offsets.size // <Py_ssize_t>sizeof(int32_t) - 1
            self.first = column.offset
            self.validity = None if column.validity is None else View(column.validity)
            self.data = None if data is None else View(data)

    cdef inline int read(self, Py_ssize_t row, Span* span) except -1:
        cdef int64_t end
        span[0] = Span(0, NULL_LENGTH)
        if self.offsets is None:
            return 0
        row += self.first
        if row < 0 or row >= self.rows:
            raise ValueError(f"row {row} of a column of {self.rows}")
        if self.validity is not None:
            if row >= 8 * self.validity.size:
                raise ValueError(f"row {row} of a validity bitmap of {self.validity.size} bytes")
            if not self.validity.start[row >> 3] >> (row & 7) & 1:
                return 0
        span.at = (<const int32_t*>self.offsets.start)[row]
        end = (<const int32_t*>self.offsets.start)[row + 1]
        if span.at < 0 or span.at > end or (self.data is not None and end > self.data.size):
            raise ValueError(f"row {row} spans {span.at} to {end}, which is not in its column")
        span.length = <int32_t>(end - span.at)
        return 0


cdef inline int varint_bytes(int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline uint8_t* put_varint(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while raw >= 0x80:
        out[0] = <uint8_t>(raw & 0x7F | 0x80)
        out += 1
        raw >>= 7
    out[0] = <uint8_t>raw
    return out + 1


@cython.final
cdef class Encoder:
    """Encodes rows as records: first measures them all, then writes into a buffer of that size."""

    cdef Rows keys, values, headers, names, header_values
    cdef View times
    cdef int64_t base_timestamp

    def __cinit__(self, key, value, timestamps, base_timestamp, headers):
        self.keys = Rows(key, None if key is None else key.data)
        self.values = Rows(value, None if value is None else value.data)
        self.headers = Rows(headers, None)
        self.names = Rows(None, None) if headers is None else Rows(headers.names, headers.names.data)
        self.header_values = Rows(None, None) if headers is None else Rows(headers.values, headers.values.data)
        self.times = None if timestamps is None else View(timestamps)
        self.base_timestamp = base_timestamp

    cdef inline int64_t timestamp(self, Py_ssize_t row) noexcept:
        return self.base_timestamp if self.times is None else (<const int64_t*>self.times.start)[row]

    cdef int64_t cell_bytes(self, Rows column, Py_ssize_t row) except -1:
        cdef Span span
        column.read(row, &span)
        return varint_bytes(span.length) + max(span.length, 0)

    cdef uint8_t* put_cell(self, uint8_t* out, Rows column, Py_ssize_t row) except NULL:
        cdef Span span
        column.read(row, &span)
        out = put_varint(out, span.length)
        if span.length > 0:
            memcpy(out, column.data.start + span.at, span.length)
            out += span.length
        return out

    cdef int64_t measure(self, Py_ssize_t row, Py_ssize_t delta) except -1:
        cdef int64_t time = self.timestamp(row), size
        cdef Span span, name
        cdef int32_t entry
        if overflows_minus(time, self.base_timestamp):
            raise InvalidRecord(f"row {row} has a timestamp too far from {self.base_timestamp}")
        size = 1 + varint_bytes(time - self.base_timestamp) + varint_bytes(delta)
        size += self.cell_bytes(self.keys, row) + self.cell_bytes(self.values, row)
        self.headers.read(row, &span)
        size += varint_bytes(max(span.length, 0))
        for entry in range(span.at, span.at + max(span.length, 0)):
            self.names.read(entry, &name)
            if name.length < 0:
                raise InvalidRecord(f"row {row} has a header without a name")
            size += self.cell_bytes(self.names, entry) + self.cell_bytes(self.header_values, entry)
        return size

    cdef uint8_t* put(self, uint8_t* out, Py_ssize_t row, Py_ssize_t delta) except NULL:
        cdef Span span
        cdef int32_t entry
        out[0] = 0  # attributes, unused
        out = put_varint(out + 1, self.timestamp(row) - self.base_timestamp)
        out = put_varint(out, delta)
        out = self.put_cell(out, self.keys, row)
        out = self.put_cell(out, self.values, row)
        self.headers.read(row, &span)
        out = put_varint(out, max(span.length, 0))
        for entry in range(span.at, span.at + max(span.length, 0)):
            out = self.put_cell(out, self.names, entry)
            out = self.put_cell(out, self.header_values, entry)
        return out


cdef inline bint overflows_minus(int64_t a, int64_t b) noexcept nogil:
    return a > INT64_MAX + b if b < 0 else a < INT64_MIN + b


def encode(Py_ssize_t start, Py_ssize_t end, key, value, timestamps, int64_t base_timestamp, headers):
    cdef Encoder encoder = Encoder(key, value, timestamps, base_timestamp, headers)
    cdef int64_t max_timestamp = INT64_MIN, total = 0, size
    cdef Py_ssize_t row
    cdef uint8_t* out
    if not 0 <= start < end or (timestamps is not None and end > encoder.times.size // 8):
        raise ValueError(f"rows {start} to {end} are none, or more than there are timestamps")
    sizes_block = PyBytes_FromStringAndSize(NULL, (end - start) * sizeof(int32_t))
    cdef int32_t* sizes = <int32_t*>PyBytes_AS_STRING(sizes_block)
    for row in range(start, end):
        size = encoder.measure(row, row - start)
        total += varint_bytes(size) + size
        if total > BODY_BYTES_MAX:
            raise MessageTooLarge(f"rows {start} to {end} take more than {BODY_BYTES_MAX} bytes: send fewer")
        sizes[row - start] = <int32_t>size
        max_timestamp = max(max_timestamp, encoder.timestamp(row))
    block = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t*>PyBytes_AS_STRING(block)
    for row in range(start, end):
        out = put_varint(out, sizes[row - start])
        out = encoder.put(out, row, row - start)
    return block, max_timestamp
