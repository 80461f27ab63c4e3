# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The per-record loops, compiled: the counterpart of `_columns_pure.py`, documented in `kernel.Kernel`.

It reads untrusted bytes. Every read goes through a Cursor, which never passes its end, or uses a range that was
checked against its buffer just before.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp, memcpy, memset

from penstock.foundation.errors import CorruptMessage, InvalidRecord, MessageTooLarge

REVISION = 5  # see kernel.py

cdef enum:
    HEADER_BYTES = 61  # of a batch; see batch.py for these
    LENGTH_END = 12
    MAGIC = 2
    CODEC_MASK = 0x07
    CODEC_MAX = 4
    TRANSACTIONAL = 0x10
    BROKER_ONLY = 0x68
    RECORD_BYTES_MIN = 6  # attributes, two deltas, two lengths and the number of headers
    ROW_BYTES = 2 * 8 + 8 * 4  # of the columns that `decode` makes
    NULL_LENGTH = -1
    ABSENT_LENGTH = -2
    VARINT_LAST_SHIFT = 28
    VARINT_LAST_BYTE_MAX = 0x0F
    VARLONG_LAST_SHIFT = 63
    VARLONG_LAST_BYTE_MAX = 0x01

cdef int64_t ARROW_BYTES_MAX = 2147483647  # the range of int32 offsets
cdef int64_t BODY_BYTES_MAX = 2147483647 - 49  # a batch's length field, less the header fields that it counts


cdef class View:
    """A buffer view that keeps its owner's bytes alive."""

    cdef Py_buffer buffer
    cdef const uint8_t* start
    cdef Py_ssize_t size

    def __cinit__(self, owner):
        PyObject_GetBuffer(owner, &self.buffer, PyBUF_SIMPLE)
        self.start = <const uint8_t*>self.buffer.buf
        self.size = self.buffer.len

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)


# ---- reading ----

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    bint bad  # once set it stays: one check after several reads is enough


cdef struct Record:
    int64_t timestamp_delta
    int32_t offset_delta
    const uint8_t* key
    int32_t key_len
    const uint8_t* value
    int32_t value_len
    const uint8_t* headers
    int32_t headers_count


cdef struct Header:
    const uint8_t* name
    int32_t name_len
    const uint8_t* value
    int32_t value_len


cdef inline int32_t varint(Cursor* cursor) noexcept nogil:
    """Reads a 32-bit zigzag varint; one and two bytes (most of them) here, longer ones below."""
    cdef uint32_t raw
    if cursor.end - cursor.at < 2:
        return <int32_t>long_varint(cursor, VARINT_LAST_SHIFT, VARINT_LAST_BYTE_MAX)
    raw = cursor.at[0]
    if raw < 0x80:
        cursor.at += 1
    elif cursor.at[1] < 0x80:
        raw = raw & 0x7F | <uint32_t>cursor.at[1] << 7
        cursor.at += 2
    else:
        return <int32_t>long_varint(cursor, VARINT_LAST_SHIFT, VARINT_LAST_BYTE_MAX)
    return <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)


cdef int64_t long_varint(Cursor* cursor, int last_shift, uint64_t last_byte_max) noexcept nogil:
    """Reads a zigzag varint whose last possible byte, at `last_shift`, is at most `last_byte_max`."""
    cdef uint64_t raw = 0, byte
    cdef int shift = 0
    while cursor.at < cursor.end:
        byte = cursor.at[0]
        cursor.at += 1
        if shift == last_shift and byte > last_byte_max:
            break
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
        shift += 7
    cursor.bad = True
    return 0


cdef inline const uint8_t* take(Cursor* cursor, int32_t length) noexcept nogil:
    """Returns the start of the next `length` bytes and advances the cursor; -1 is null and takes none."""
    cdef const uint8_t* taken = cursor.at
    if length < NULL_LENGTH or length > cursor.end - cursor.at:
        cursor.bad = True
    elif length > 0:
        cursor.at += length
    return taken


cdef inline void read_record(Cursor* cursor, Record* record) noexcept nogil:
    """Reads the record after its length; the cursor ends where the record does."""
    cdef Header header
    cursor.at += 1  # attributes, unused; the record has at least RECORD_BYTES_MIN bytes
    if cursor.at < cursor.end and cursor.at[0] < 0x80:
        record.timestamp_delta = varint(cursor)
    else:
        record.timestamp_delta = long_varint(cursor, VARLONG_LAST_SHIFT, VARLONG_LAST_BYTE_MAX)
    record.offset_delta = varint(cursor)
    record.key_len = varint(cursor)
    record.key = take(cursor, record.key_len)
    record.value_len = varint(cursor)
    record.value = take(cursor, record.value_len)
    record.headers_count = varint(cursor)
    record.headers = cursor.at
    if record.headers_count < 0:
        cursor.bad = True
    for _ in range(record.headers_count):
        if not next_header(cursor, &header):
            break
    if cursor.at != cursor.end:
        cursor.bad = True


cdef inline bint next_header(Cursor* cursor, Header* header) noexcept nogil:
    header.name_len = varint(cursor)
    if header.name_len < 0:
        cursor.bad = True  # a name is never null
    header.name = take(cursor, header.name_len)
    header.value_len = varint(cursor)
    header.value = take(cursor, header.value_len)
    return not cursor.bad


cdef Py_ssize_t count_between(const uint8_t* start, const uint8_t* end) noexcept:
    cdef Cursor cursor = Cursor(start, end, False)
    cdef int32_t length
    cdef Py_ssize_t count = 0
    while cursor.at < cursor.end:
        length = varint(&cursor)
        if length < RECORD_BYTES_MIN:
            return -1
        take(&cursor, length)
        if cursor.bad:
            return -1
        count += 1
    return count


def count_records(buf, Py_ssize_t start, Py_ssize_t end):
    cdef Py_buffer buffer
    PyObject_GetBuffer(buf, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= buffer.len:
            raise ValueError(f"range {start} to {end} lies outside of {buffer.len} bytes")
        return count_between(<const uint8_t*>buffer.buf + start, <const uint8_t*>buffer.buf + end)
    finally:
        PyBuffer_Release(&buffer)


cdef uint64_t big_endian(const uint8_t* at, int size) noexcept:
    cdef uint64_t value = 0
    cdef int place
    for place in range(size):
        value = value << 8 | at[place]
    return value


def client_header(buf):
    cdef Py_buffer buffer
    PyObject_GetBuffer(buf, &buffer, PyBUF_SIMPLE)
    try:
        return read_client_header(<const uint8_t*>buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)


cdef object read_client_header(const uint8_t* at, Py_ssize_t size):
    if size < HEADER_BYTES:
        return None
    cdef int32_t length = <int32_t>big_endian(at + 8, 4)
    cdef int8_t magic = <int8_t>at[16]
    cdef int16_t attributes = <int16_t>big_endian(at + 21, 2)
    cdef int32_t last_offset_delta = <int32_t>big_endian(at + 23, 4)
    cdef int64_t producer_id = <int64_t>big_endian(at + 43, 8)
    cdef int16_t epoch = <int16_t>big_endian(at + 51, 2)
    cdef int32_t sequence = <int32_t>big_endian(at + 53, 4)
    cdef int32_t count = <int32_t>big_endian(at + 57, 4)
    if magic != MAGIC or LENGTH_END + <int64_t>length != size:
        return None
    if count <= 0 or last_offset_delta != count - 1 or attributes & BROKER_ONLY:
        return None
    if producer_id >= 0:
        if epoch < 0 or sequence < 0:
            return None
    elif producer_id != -1 or attributes & TRANSACTIONAL:
        return None
    if attributes & CODEC_MASK:
        if attributes & CODEC_MASK > CODEC_MAX:
            return None
    elif count_between(at + HEADER_BYTES, at + size) != count:
        return None
    return (
        <int64_t>big_endian(at, 8),
        length,
        <int32_t>big_endian(at + 12, 4),
        magic,
        <uint32_t>big_endian(at + 17, 4),
        attributes,
        last_offset_delta,
        <int64_t>big_endian(at + 27, 8),
        <int64_t>big_endian(at + 35, 8),
        producer_id,
        epoch,
        sequence,
        count,
    )


def decode(
    body,
    Py_ssize_t count,
    int32_t last_offset_delta,
    int64_t base_offset,
    int64_t base_timestamp,
    bint same_timestamp,
):
    cdef View view = View(body)
    # The count comes from the sender: allocate no more rows than the body can contain.
    if count < 0 or count > view.size // (1 + RECORD_BYTES_MIN):
        raise CorruptMessage(f"{count} records cannot be in {view.size} bytes")
    block = PyBytes_FromStringAndSize(NULL, count * ROW_BYTES)
    cdef char* rows = PyBytes_AS_STRING(block)
    cdef Py_ssize_t decoded
    with nogil:
        decoded = fill_columns(
            view, rows, count, last_offset_delta, base_offset, base_timestamp, same_timestamp
        )
    if decoded < 0:
        raise CorruptMessage(f"more bytes follow the last of {count} records")
    if decoded < count:
        raise CorruptMessage(f"record {decoded} of {count} does not agree with its lengths or offsets")
    wide = memoryview(block).cast("q")
    narrow = memoryview(block).cast("i")
    return (
        wide[:count],
        wide[count : 2 * count],
        narrow[4 * count : 5 * count],
        narrow[5 * count : 6 * count],
        narrow[6 * count : 7 * count],
        narrow[7 * count : 8 * count],
        narrow[8 * count : 9 * count],
        narrow[9 * count : 10 * count],
        narrow[10 * count : 11 * count],
        narrow[11 * count : 12 * count],
    )


cdef Py_ssize_t fill_columns(
    View view,
    char* block,
    Py_ssize_t count,
    int32_t last_offset_delta,
    int64_t base_offset,
    int64_t base_timestamp,
    bint same_timestamp,
) noexcept nogil:
    """Returns the number of valid records before the first invalid one; -1 if all are but more bytes follow."""
    cdef int64_t* offsets = <int64_t*>block
    cdef int64_t* timestamps = offsets + count
    cdef int32_t* key_at = <int32_t*>(timestamps + count)
    cdef int32_t* key_len = key_at + count
    cdef int32_t* value_at = key_len + count
    cdef int32_t* value_len = value_at + count
    cdef int32_t* headers_at = value_len + count
    cdef int32_t* headers_count = headers_at + count
    cdef int32_t* record_at = headers_count + count
    cdef int32_t* record_len = record_at + count
    cdef Cursor cursor
    cdef Record record
    cdef const uint8_t* start = view.start
    cdef const uint8_t* end = start + view.size
    cdef const uint8_t* first
    cdef int32_t length, previous = -1
    cdef Py_ssize_t row
    cursor = Cursor(start, end, False)
    for row in range(count):
        first = cursor.at
        length = varint(&cursor)
        if length < RECORD_BYTES_MIN or length > end - cursor.at:
            return row
        cursor.end = cursor.at + length
        read_record(&cursor, &record)
        if cursor.bad or record.offset_delta <= previous or record.offset_delta > last_offset_delta:
            return row
        if base_offset > INT64_MAX - record.offset_delta:
            return row
        previous = record.offset_delta
        if same_timestamp:
            record.timestamp_delta = 0
        elif overflows(base_timestamp, record.timestamp_delta):
            return row
        offsets[row] = base_offset + record.offset_delta
        timestamps[row] = base_timestamp + record.timestamp_delta
        key_at[row] = <int32_t>(record.key - start)
        key_len[row] = record.key_len
        value_at[row] = <int32_t>(record.value - start)
        value_len[row] = record.value_len
        headers_at[row] = <int32_t>(record.headers - start)
        headers_count[row] = record.headers_count
        record_at[row] = <int32_t>(first - start)
        record_len[row] = <int32_t>(cursor.at - first)
        cursor.end = end
    return count if cursor.at == end else -1


cdef inline bint overflows(int64_t a, int64_t b) noexcept nogil:
    return a > INT64_MAX - b if b > 0 else a < INT64_MIN - b


# ---- headers ----

cdef class HeaderRows:
    """Positions of each record's headers; they come from untrusted callers, so they are checked again."""

    cdef View body, at, count
    cdef Py_ssize_t rows

    def __cinit__(self, body, at, count):
        self.body, self.at, self.count = View(body), View(at), View(count)
        self.rows = self.at.size // sizeof(int32_t)
        if self.count.size != self.at.size:
            raise ValueError(f"{self.at.size} bytes of positions, {self.count.size} of counts")

    cdef int32_t open(self, Py_ssize_t row, Cursor* cursor) except -1:
        """Sets the cursor to the row's first header; returns the number of headers."""
        cdef int32_t at = (<const int32_t*>self.at.start)[row]
        cdef int32_t count = (<const int32_t*>self.count.start)[row]
        if at < 0 or at > self.body.size or count < 0 or count > (self.body.size - at) // 2:
            raise CorruptMessage(f"{count} headers at byte {at} of {self.body.size}")
        cursor[0] = Cursor(self.body.start + at, self.body.start + self.body.size, False)
        return count


def find_header(body, at, count, name):
    cdef HeaderRows rows = HeaderRows(body, at, count)
    cdef View wanted = View(name)
    block = PyBytes_FromStringAndSize(NULL, 2 * rows.rows * sizeof(int32_t))
    cdef int32_t* value_at = <int32_t*>PyBytes_AS_STRING(block)
    cdef int32_t* value_len = value_at + rows.rows
    cdef Cursor cursor
    cdef Header header
    cdef Py_ssize_t row
    for row in range(rows.rows):
        value_at[row] = 0
        value_len[row] = ABSENT_LENGTH
        for _ in range(rows.open(row, &cursor)):
            if not next_header(&cursor, &header):
                raise CorruptMessage(f"headers of record {row} are damaged")
            if header.name_len == wanted.size and memcmp(header.name, wanted.start, wanted.size) == 0:
                value_at[row] = <int32_t>(header.value - rows.body.start)
                value_len[row] = header.value_len
                break
    found = memoryview(block).cast("i")
    return found[: rows.rows], found[rows.rows :]


def list_headers(body, at, count):
    cdef HeaderRows rows = HeaderRows(body, at, count)
    cdef Cursor cursor
    cdef Header header
    cdef Py_ssize_t row, entry = 0, total = 0
    for row in range(rows.rows):
        total += rows.open(row, &cursor)
    block = PyBytes_FromStringAndSize(NULL, 4 * total * sizeof(int32_t))
    cdef int32_t* name_at = <int32_t*>PyBytes_AS_STRING(block)
    cdef int32_t* name_len = name_at + total
    cdef int32_t* value_at = name_len + total
    cdef int32_t* value_len = value_at + total
    for row in range(rows.rows):
        for _ in range(rows.open(row, &cursor)):
            if not next_header(&cursor, &header):
                raise CorruptMessage(f"headers of record {row} are damaged")
            name_at[entry] = <int32_t>(header.name - rows.body.start)
            name_len[entry] = header.name_len
            value_at[entry] = <int32_t>(header.value - rows.body.start)
            value_len[entry] = header.value_len
            entry += 1
    found = memoryview(block).cast("i")
    return found[:total], found[total : 2 * total], found[2 * total : 3 * total], found[3 * total :]


include "_columns_write.pxi"
include "_columns_rows.pxi"
include "_columns_keys.pxi"
include "_columns_filter.pxi"
include "_columns_delays.pxi"
include "_columns_schemas.pxi"
