# ---- delayed messages: see delays/entries.py for the layout of an entry ----

cdef enum:
    ENTRY_BYTES = 32
    ENTRY_KEY_BYTES = 10  # key of a record that becomes an entry: its kind, and an offset
    ENTRY_VALUE_BYTES = 24


cdef int compare_entries(const void* left, const void* right) noexcept nogil:
    return memcmp(left, right, 16)


def sort_entries(entries):
    cdef View view = View(entries)
    if view.size % ENTRY_BYTES:
        raise ValueError(f"{view.size} bytes are no whole number of entries")
    qsort(<void*>view.start, view.size // ENTRY_BYTES, ENTRY_BYTES, compare_entries)


cdef inline void write_big_endian(uint8_t* at, uint64_t value) noexcept nogil:
    cdef int place
    for place in range(8):
        at[7 - place] = <uint8_t>(value >> (8 * place))


def pack_entries(batch, kind):
    cdef View view = View(batch), wanted = View(kind)
    if view.size < HEADER_BYTES or wanted.size != 2:
        raise CorruptMessage(f"{view.size} bytes are no batch")
    cdef Py_ssize_t count = <int32_t>big_endian(view.start + 57, 4), row, made = 0
    cdef uint64_t base = big_endian(view.start, 8)
    if count < 0 or count > (view.size - HEADER_BYTES) // (1 + RECORD_BYTES_MIN):
        raise CorruptMessage(f"{count} records cannot be in {view.size} bytes")
    block = PyBytes_FromStringAndSize(NULL, count * ENTRY_BYTES)
    cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(block)
    cdef Cursor cursor = Cursor(view.start + HEADER_BYTES, view.start + view.size, False)
    cdef const uint8_t* end = cursor.end
    cdef Record record
    cdef int32_t length, previous = -1
    others = []
    for row in range(count):
        length = varint(&cursor)
        if cursor.bad or length < RECORD_BYTES_MIN or length > end - cursor.at:
            raise CorruptMessage(f"record {row} of {count} does not agree with its length")
        cursor.end = cursor.at + length
        read_record(&cursor, &record)
        if cursor.bad or record.offset_delta <= previous or <int64_t>base > INT64_MAX - record.offset_delta:
            raise CorruptMessage(f"record {row} of {count} does not agree with its lengths or offsets")
        previous = record.offset_delta
        cursor.end = end
        if record.key_len == ENTRY_KEY_BYTES and memcmp(record.key, wanted.start, 2) == 0:
            if record.value_len < ENTRY_VALUE_BYTES:
                continue  # a tombstone
            memcpy(out, record.value + 1, 8)
            memcpy(out + 8, record.key + 2, 8)
            out[16] = record.value[0]
            memcpy(out + 17, record.value + 9, 7)
            write_big_endian(out + 24, base + <uint64_t>record.offset_delta)
            out += ENTRY_BYTES
            made += 1
        elif record.key_len >= 0:
            others.append((
                PyBytes_FromStringAndSize(<const char*>record.key, record.key_len),
                None if record.value_len < 0
                else PyBytes_FromStringAndSize(<const char*>record.value, record.value_len),
            ))
    if cursor.at != end:
        raise CorruptMessage(f"more bytes follow the last of {count} records")
    return block[: made * ENTRY_BYTES], others
