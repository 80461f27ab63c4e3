# Part of _kernel.pyx: runs the instructions of an Avro encoder, for each row. See avro/operations.py for them.


cdef enum Write:  # as operations.Write
    WRITE_END = 0
    WRITE_BOOLEAN = 1
    WRITE_INT = 2
    WRITE_LONG = 3
    WRITE_DIVIDED = 4
    WRITE_RAW = 5
    WRITE_BYTES = 6
    WRITE_FIXED = 7
    WRITE_ENUM = 8
    WRITE_DECIMAL = 9
    WRITE_LIST = 10
    WRITE_REQUIRED = 11
    WRITE_BRANCH = 12
    WRITE_INDEX = 13
    WRITE_JUMP = 14
    WRITE_FAIL = 15


cdef enum WriteReason:  # the rest of operations.Reason
    REASON_NULL = 19
    REASON_NO_SYMBOL = 20
    REASON_SIZE = 21
    REASON_NO_MEMBER = 22


cdef enum:
    VARINT_BYTES_MAX = 10

BYTES_LAYOUT = array("i", [KIND_BYTES, 0, True, -1, -1])  # of one nullable column of bytes


cdef struct Source:
    const uint8_t* validity
    const int32_t* offsets
    const uint8_t* values
    int64_t values_size
    int64_t offset
    int64_t length


@cython.final
cdef class Sources:
    """The columns of a `layout.SourceColumn` each. Keeps their buffers alive."""

    cdef list views
    cdef Source* sources

    def __cinit__(self, layout, columns, Py_ssize_t count):
        cdef View validity, offsets, values
        cdef Source* source
        cdef int64_t needed
        cdef Py_ssize_t index = 0
        self.views = []
        if len(columns) != len(layout.columns) or (count and columns[0].length < count):
            raise ValueError(f"{len(columns)} columns, for {count} rows: expected {len(layout.columns)}")
        self.sources = <Source*>calloc(len(columns), sizeof(Source))
        if self.sources is NULL:
            raise MemoryError
        for column, described in zip(columns, layout.columns):
            validity, offsets, values = View(column.validity), View(column.offsets), View(column.values)
            self.views.append((validity, offsets, values))
            source = &self.sources[index]
            source.validity = validity.start
            source.offsets = <const int32_t*>offsets.start
            source.values = values.start
            source.values_size = values.size
            source.offset = column.offset
            source.length = column.length
            needed = source.offset + source.length
            if source.offset < 0 or source.length < 0 or (column.validity is not None and 8 * validity.size < needed):
                raise ValueError(f"column {index}: {validity.size} bytes of validity for {needed} values")
            if source.length and described.kind in (KIND_BYTES, KIND_LIST):
                if offsets.size < (needed + 1) * <int64_t>sizeof(int32_t):
                    raise ValueError(f"column {index}: {offsets.size} bytes of offsets for {needed} values")
            elif described.kind == KIND_FIXED and values.size < needed * (described.type.bit_width // 8):
                raise ValueError(f"column {index}: {values.size} bytes for {needed} values")
            elif described.kind == KIND_BIT and 8 * values.size < needed:
                raise ValueError(f"column {index}: {values.size} bytes for {needed} values")
            index += 1

    def __dealloc__(self):
        free(self.sources)


cdef struct Writer:
    const Step* steps
    const Text* constants
    const Source* sources
    const int32_t* first_children  # of each column, or -1
    Table* table
    Builder* output
    int32_t reason
    int64_t bad_step


cdef inline uint8_t* room(Writer* writer, int64_t size) noexcept nogil:
    """Returns where so many bytes may be written; NULL if there is no memory."""
    cdef Builder* output = writer.output
    if size > output.size_max - output.size and not reserve_bytes(writer.table, output, output.size + size):
        return NULL
    return output.values + output.size


cdef inline bint write_bytes(Writer* writer, const uint8_t* start, int64_t size) noexcept nogil:
    cdef uint8_t* at = room(writer, size)
    if at is NULL:
        return False
    if size:
        memcpy(at, start, size)
    writer.output.size += size
    return True


cdef inline bint write_long(Writer* writer, int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef uint8_t* first = room(writer, VARINT_BYTES_MAX)
    cdef uint8_t* at = first
    if at is NULL:
        return False
    while raw > 0x7F:
        at[0] = <uint8_t>(raw | 0x80)
        at += 1
        raw >>= 7
    at[0] = <uint8_t>raw
    writer.output.size += at + 1 - first
    return True


cdef inline bint has_value(const Source* source, int64_t slot) noexcept nogil:
    slot += source.offset
    return source.validity is NULL or source.validity[slot >> 3] >> (slot & 7) & 1


cdef inline bint text_at(const Source* source, int64_t slot, Text* text) noexcept nogil:
    """Finds a value of a column of bytes; returns whether it is within the data."""
    cdef const int32_t* offset = source.offsets + source.offset + slot
    text.start = source.values + offset[0]
    text.size = <int64_t>offset[1] - offset[0]
    return 0 <= offset[0] <= offset[1] <= source.values_size


cdef int32_t write_symbol(Writer* writer, const Step* step, const Text* text) noexcept nogil:
    """Finds the symbol by binary search, and writes its index."""
    cdef const Text* pairs = writer.constants + step.a
    cdef int64_t low = 0, high = step.b, middle
    cdef int order
    while low < high:
        middle = (low + high) >> 1
        order = compare_texts(text, &pairs[2 * middle])
        if order == 0:
            write_bytes(writer, pairs[2 * middle + 1].start, pairs[2 * middle + 1].size)
            return FINE
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return REASON_NO_SYMBOL


cdef int32_t write_decimal(Writer* writer, const Step* step, const uint8_t* value) noexcept nogil:
    """Writes a decimal in two's complement, the most significant byte first."""
    cdef uint64_t low, high
    cdef int128 unscaled
    cdef uint8_t digits[DECIMAL_BYTES]
    cdef uint8_t fill
    cdef int64_t skipped = 0, place
    memcpy(&low, value, 8)
    memcpy(&high, value + 8, 8)
    unscaled = <int128>(<uint128>high << 64 | low)
    if not has_digits(unscaled, step.a):
        return REASON_DECIMAL
    for place in range(DECIMAL_BYTES):
        digits[DECIMAL_BYTES - 1 - place] = value[place]
    fill = 0xFF if digits[0] & 0x80 else 0
    # Bytes that only repeat the sign are left out.
    while skipped < DECIMAL_BYTES - 1 and digits[skipped] == fill and (digits[skipped + 1] ^ fill) < 0x80:
        skipped += 1
    if step.b < 0:
        write_long(writer, DECIMAL_BYTES - skipped)
    elif step.b < DECIMAL_BYTES - skipped:
        return REASON_DECIMAL
    else:
        for place in range(step.b - (DECIMAL_BYTES - skipped)):
            write_bytes(writer, &fill, 1)
    write_bytes(writer, digits + skipped, DECIMAL_BYTES - skipped)
    return FINE


cdef bint write_items(Writer* writer, int64_t pc, int64_t slot) noexcept nogil:
    cdef const Step* step = &writer.steps[pc]
    cdef const Source* source = &writer.sources[step.column]
    cdef const int32_t* offset = source.offsets + source.offset + slot
    cdef int64_t item, end = offset[1]
    if not 0 <= offset[0] <= end <= writer.sources[writer.first_children[step.column]].length:
        return refused(writer, REASON_COUNT, pc)
    if offset[0] < end:
        write_long(writer, end - offset[0])
        for item in range(offset[0], end):
            if not write_value(writer, pc + 1, item) or writer.table.error:
                return False
    return write_long(writer, 0)


cdef bint refused(Writer* writer, int32_t reason, int64_t step) noexcept nogil:
    writer.reason = reason
    writer.bad_step = step
    return False


cdef bint write_value(Writer* writer, int64_t pc, int64_t slot) noexcept nogil:
    """Runs the instructions from `pc` to the END, for one row or item; returns whether it can be encoded."""
    cdef const Step* step
    cdef const Source* source
    cdef int64_t at, value
    cdef Text text
    cdef int32_t reason
    cdef uint8_t byte
    while True:
        step = &writer.steps[pc]
        source = &writer.sources[max(step.column, 0)]
        at = source.offset + slot
        reason = FINE
        if step.operation == WRITE_END:
            return True
        elif step.operation == WRITE_BOOLEAN:
            byte = source.values[at >> 3] >> (at & 7) & 1
            write_bytes(writer, &byte, 1)
        elif step.operation == WRITE_INT:
            write_long(writer, (<const int32_t*>source.values)[at])
        elif step.operation == WRITE_LONG:
            write_long(writer, (<const int64_t*>source.values)[at])
        elif step.operation == WRITE_DIVIDED:
            value = (<const int64_t*>source.values)[at]
            write_long(writer, value // step.a - (value % step.a < 0))  # C rounds toward zero
        elif step.operation == WRITE_RAW:
            write_bytes(writer, source.values + at * step.a, step.a)
        elif step.operation == WRITE_BYTES or step.operation == WRITE_FIXED or step.operation == WRITE_ENUM:
            if not text_at(source, slot, &text):
                reason = REASON_COUNT
            elif step.operation == WRITE_ENUM:
                reason = write_symbol(writer, step, &text)
            elif step.operation == WRITE_FIXED and text.size != step.a:
                reason = REASON_SIZE
            else:
                if step.operation == WRITE_BYTES:
                    write_long(writer, text.size)
                write_bytes(writer, text.start, text.size)
        elif step.operation == WRITE_DECIMAL:
            reason = write_decimal(writer, step, source.values + at * DECIMAL_BYTES)
        elif step.operation == WRITE_LIST:
            if not write_items(writer, pc, slot):
                return False
            pc = step.a
            continue
        elif step.operation == WRITE_REQUIRED:
            if not has_value(source, slot):
                reason = REASON_NULL
        elif step.operation == WRITE_BRANCH:
            if not has_value(source, slot):
                pc = step.b
                continue
            if step.a >= 0:
                write_long(writer, step.a)
        elif step.operation == WRITE_INDEX:
            write_long(writer, step.a)
        elif step.operation == WRITE_JUMP:
            pc = step.a
            continue
        elif step.operation == WRITE_FAIL:
            reason = REASON_NO_MEMBER
        if reason != FINE:
            return refused(writer, reason, pc)
        pc += 1


def encode_avro(program, columns, Py_ssize_t count, bytes header):
    cdef View steps = View(program.steps)
    cdef Constants constants = Constants(program.constants)
    cdef Sources sources = Sources(program.layout, columns, count)
    cdef TableOwner owner = TableOwner(BYTES_LAYOUT)
    cdef View header_view = View(header), children
    cdef Writer writer
    cdef Py_ssize_t row = 0
    cdef Table* table = &owner.table
    memset(&writer, 0, sizeof(Writer))
    children = View(array("i", [part.children[0].index if part.children else -1 for part in program.layout.columns]))
    writer.first_children = <const int32_t*>children.start
    writer.steps = <const Step*>steps.start
    writer.constants = constants.texts
    writer.sources = sources.sources
    writer.table = table
    writer.output = &table.builders[0]
    with nogil:
        reserve_rows(table, 0, count)
        while row < count and not table.error:
            if has_value(&writer.sources[0], row):
                write_bytes(&writer, header_view.start, header_view.size)
                if not write_value(&writer, 0, row):
                    break
                writer.output.offsets[row + 1] = <int32_t>writer.output.size
                added(writer.output, True)
            else:
                put_null(table, 0)
            row += 1
    raise_error(table)
    if row < count:
        return BadRow(writer.reason, row, writer.bad_step)
    return owner.finish()[0]
