# Part of _kernel.pyx: encodes columns as Protobuf payloads, as _protobuf_encode_pure.py does, with the tables of
# protobuf/encoding_program.py.
#
# A message is written from its end to its start: then its length is known when the length is written.


cdef struct PbSource:  # as EncodingProgram.sources
    int64_t number
    int64_t kind
    int64_t wire
    int64_t shape
    int64_t is_required
    int64_t has_presence
    int64_t is_packed
    int64_t one_of
    int64_t column
    int64_t element
    int64_t message
    int64_t enum_index
    int64_t width  # of a value in the column: of integers 4, 8, or 16 for a decimal
    int64_t has_bounds
    int64_t low
    int64_t high

cdef struct PbNames:  # as EncodingProgram.enums
    int64_t first
    int64_t count

cdef struct PbWriter:
    const PbMessage* messages
    const PbSource* sources
    const PbNames* enums
    const PbValue* names
    const uint8_t* text
    const Source* columns
    uint8_t* start  # of the memory
    uint8_t* at  # the first byte that is written
    uint8_t* end
    bint is_damaged  # offsets of a column that are not within its data
    bint is_out_of_memory


# ---- writing ----

cdef bint pb_grow(PbWriter* writer, int64_t size) noexcept nogil:
    """Makes memory for more bytes before those that are written."""
    cdef int64_t used = writer.end - writer.at
    cdef int64_t capacity = 2 * (writer.end - writer.start) + size
    cdef uint8_t* larger = <uint8_t*>malloc(capacity)
    if larger is NULL:
        writer.is_out_of_memory = True
        return False
    if used:
        memcpy(larger + capacity - used, writer.at, used)
    free(writer.start)
    writer.start = larger
    writer.end = larger + capacity
    writer.at = writer.end - used
    return True


cdef inline bint pb_write(PbWriter* writer, const void* data, int64_t size) noexcept nogil:
    if writer.at - writer.start < size and not pb_grow(writer, size):
        return False
    writer.at -= size
    if size:
        memcpy(writer.at, data, size)
    return True


cdef inline bint pb_write_varint(PbWriter* writer, uint64_t value) noexcept nogil:
    cdef int size = 1
    cdef uint64_t rest = value >> 7
    cdef uint8_t* at
    if writer.at - writer.start < PB_VARINT_BYTES_MAX and not pb_grow(writer, PB_VARINT_BYTES_MAX):
        return False
    while rest:
        size += 1
        rest >>= 7
    writer.at -= size
    at = writer.at
    while value > 0x7F:
        at[0] = <uint8_t>(value & 0x7F | 0x80)
        at += 1
        value >>= 7
    at[0] = <uint8_t>value
    return True


cdef inline bint pb_write_tag(PbWriter* writer, int64_t number, int64_t wire) noexcept nogil:
    return pb_write_varint(writer, <uint64_t>(number << 3 | wire))


cdef inline bint pb_write_size(PbWriter* writer, int64_t written) noexcept nogil:
    """Writes the length of what was written since there were `written` bytes."""
    return pb_write_varint(writer, <uint64_t>(writer.end - writer.at - written))


# ---- values ----

cdef bint pb_write_message(PbWriter* writer, const PbMessage* message, int64_t row) noexcept nogil:
    """Writes the fields of a message. Returns False if a value does not fit, and after errors."""
    cdef const PbSource* first = writer.sources + message.first
    cdef const PbSource* source = first + message.count
    while source > first:
        source -= 1
        if not has_value(writer.columns + source.column, row):
            if source.is_required:
                return False
        elif source.one_of >= 0 and pb_has_other(writer, first, source, row):
            return False
        elif source.shape == PB_SINGULAR:
            if not pb_write_singular(writer, source, row):
                return False
        elif not pb_write_elements(writer, source, row):
            return False
    return True


cdef bint pb_has_other(PbWriter* writer, const PbSource* first, const PbSource* source, int64_t row) noexcept nogil:
    """Whether a field before `source` in the same oneof has a value."""
    cdef const PbSource* other = first
    while other < source:
        if other.one_of == source.one_of and has_value(writer.columns + other.column, row):
            return True
        other += 1
    return False


cdef inline bint pb_write_singular(PbWriter* writer, const PbSource* source, int64_t row) noexcept nogil:
    cdef int64_t written = writer.end - writer.at
    cdef const uint8_t* at
    cdef const uint8_t* end
    if not pb_write_value(writer, source, row):
        return False
    if not source.has_presence:
        at, end = writer.at, writer.end - written
        while at < end and at[0] == 0:
            at += 1
        if at == end:  # zero, which proto3 leaves out
            writer.at = writer.end - written
            return True
    return pb_write_tag(writer, source.number, source.wire)


cdef bint pb_write_elements(PbWriter* writer, const PbSource* source, int64_t row) noexcept nogil:
    """Writes the elements of a list, or the entries of a map."""
    cdef const Source* column = writer.columns + source.column
    cdef const Source* elements = writer.columns + source.element
    cdef int64_t start = column.offsets[column.offset + row], end = column.offsets[column.offset + row + 1]
    cdef int64_t element = end, written = writer.end - writer.at
    if source.shape == PB_MAP:
        elements = writer.columns + writer.sources[writer.messages[source.message].first].column
    if not 0 <= start <= end <= elements.length:
        writer.is_damaged = True
        return False
    while element > start:
        element -= 1
        if source.shape == PB_MAP:
            if not pb_write_entry(writer, source, element):
                return False
        elif not has_value(elements, element) or not pb_write_value(writer, source, element):
            return False
        elif not source.is_packed and not pb_write_tag(writer, source.number, source.wire):
            return False
    if source.is_packed and end > start:
        return pb_write_size(writer, written) and pb_write_tag(writer, source.number, WIRE_BYTES)
    return True


cdef bint pb_write_entry(PbWriter* writer, const PbSource* source, int64_t row) noexcept nogil:
    """Writes an entry of a map. Both key and value are always written, as by Protobuf's libraries."""
    cdef const PbSource* key = writer.sources + writer.messages[source.message].first
    cdef const PbSource* part = key + 1
    cdef int64_t written = writer.end - writer.at
    while part >= key:
        if not has_value(writer.columns + part.column, row) or not pb_write_value(writer, part, row):
            return False
        if not pb_write_tag(writer, part.number, part.wire):
            return False
        part -= 1
    return pb_write_size(writer, written) and pb_write_tag(writer, source.number, WIRE_BYTES)


cdef inline bint pb_text(PbWriter* writer, const Source* column, int64_t row, Text* text) noexcept nogil:
    """Finds a string or bytes."""
    if text_at(column, row, text):
        return True
    writer.is_damaged = True
    return False


cdef bint pb_write_value(PbWriter* writer, const PbSource* source, int64_t row) noexcept nogil:
    """Writes a value without its tag. `row`: of the element, if the field is repeated."""
    cdef const Source* column = writer.columns + source.element
    cdef int64_t kind = source.kind, written = writer.end - writer.at
    cdef const uint8_t* at = column.values + (column.offset + row) * source.width
    cdef Text text
    if kind == PB_STRING or kind == PB_BYTES:
        if not pb_text(writer, column, row, &text):
            return False
        return pb_write(writer, text.start, text.size) and pb_write_size(writer, written)
    if kind == PB_MESSAGE:
        if not pb_write_message(writer, writer.messages + source.message, row):
            return False
        return pb_write_size(writer, written)
    if kind == PB_ENUM:
        return pb_write_enum(writer, source, column, row)
    if kind == PB_BOOL:
        row += column.offset
        return pb_write_varint(writer, column.values[row >> 3] >> (row & 7) & 1)
    if kind == PB_FLOAT or kind == PB_DOUBLE:
        return pb_write(writer, at, source.width)
    if kind == PB_TIMESTAMP or kind == PB_DURATION:
        return pb_write_time(writer, kind, (<const int64_t*>at)[0]) and pb_write_size(writer, written)
    return pb_write_integer(writer, source, at)


cdef inline bint pb_write_integer(PbWriter* writer, const PbSource* source, const uint8_t* at) noexcept nogil:
    cdef int64_t value, kind = source.kind
    if source.width == 4:
        value = (<const int32_t*>at)[0]
    else:
        value = (<const int64_t*>at)[0]
    if source.width == DECIMAL_BYTES:
        if (<const int64_t*>at)[1] != 0:  # negative, or more than 64 bits
            return False
    elif source.has_bounds and not source.low <= value <= source.high:
        return False
    if source.wire == WIRE_FIXED32:
        return pb_write(writer, &value, 4)
    if source.wire == WIRE_FIXED64:
        return pb_write(writer, &value, 8)
    if kind == PB_SINT32 or kind == PB_SINT64:
        return pb_write_varint(writer, <uint64_t>value << 1 ^ <uint64_t>(value >> 63))
    return pb_write_varint(writer, <uint32_t>value if kind == PB_UINT32 else <uint64_t>value)


cdef bint pb_write_time(PbWriter* writer, int64_t kind, int64_t micros) noexcept nogil:
    """Writes the fields of google.protobuf.Timestamp or Duration: seconds are field 1, nanoseconds field 2."""
    cdef int64_t seconds = micros // PB_MICROS, rest = micros % PB_MICROS
    if kind == PB_TIMESTAMP and rest < 0:  # those of a duration have the sign of its seconds
        seconds -= 1
        rest += PB_MICROS
    if rest:
        if not pb_write_varint(writer, <uint64_t>(rest * 1000)) or not pb_write_tag(writer, 2, WIRE_VARINT):
            return False
    return not seconds or (pb_write_varint(writer, <uint64_t>seconds) and pb_write_tag(writer, 1, WIRE_VARINT))


cdef bint pb_write_enum(PbWriter* writer, const PbSource* source, const Source* column, int64_t row) noexcept nogil:
    """Writes the number of an enum, which the column has as a number or as a name."""
    cdef const PbNames* each = writer.enums + source.enum_index
    cdef const PbValue* names = writer.names + each.first
    cdef int64_t low = 0, high = each.count, middle
    cdef Text text
    cdef int order
    if source.width:
        for middle in range(each.count):
            if names[middle].number == (<const int32_t*>column.values)[column.offset + row]:
                return pb_write_varint(writer, <uint64_t>names[middle].number)
        return False
    if not pb_text(writer, column, row, &text):
        return False
    while low < high:
        middle = (low + high) >> 1
        if names[middle].text_size != text.size:
            order = -1 if names[middle].text_size < text.size else 1
        else:
            order = memcmp(writer.text + names[middle].text_at, text.start, text.size)
        if order == 0:
            return pb_write_varint(writer, <uint64_t>names[middle].number)
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return False


# ---- payloads ----

def encode_protobuf(program, values, header):
    cdef Py_ssize_t row = 0, count = len(values)
    cdef TableOwner owner = TableOwner(BYTES_LAYOUT)
    cdef Sources columns = Sources(program.layout, source_columns(values, program.layout), count)
    cdef View messages = View(program.messages), sources = View(program.sources), enums = View(program.enums)
    cdef View names = View(program.values), text = View(program.text), head = View(header)
    cdef Table* table = &owner.table
    cdef PbWriter writer
    memset(&writer, 0, sizeof(PbWriter))
    writer.messages = <const PbMessage*>messages.start
    writer.sources = <const PbSource*>sources.start
    writer.enums = <const PbNames*>enums.start
    writer.names = <const PbValue*>names.start
    writer.text = text.start
    writer.columns = columns.sources
    try:
        with nogil:
            reserve_rows(table, 0, count)
            while row < count and not table.error:
                if not has_value(writer.columns, row):
                    put_null(table, 0)
                else:
                    writer.at = writer.end
                    if not pb_write_message(&writer, writer.messages, row):
                        break
                    if not pb_write(&writer, head.start, head.size):
                        break
                    put_bytes(table, 0, writer.at, writer.end - writer.at)
                row += 1
    finally:
        free(writer.start)
    raise_error(table)
    if writer.is_out_of_memory:
        raise MemoryError
    if writer.is_damaged:
        raise ValueError(f"row {row}: offsets or sizes of the column's buffers do not agree")
    return row if row < count else owner.finish()[0]
