# PbPart of _kernel.pyx: decodes Protobuf payloads, as _protobuf_decode_pure.py does, with the tables of protobuf/program.py.
#
# A message is read in two steps. `scan` reads its fields: of a singular field, a PbSlot keeps the last value, or the parts
# of a message, which are merged; elements of repeated fields go to their columns at once. Then `emit` gives each column
# its value. A message never contains itself, so that each field has one PbSlot.


cdef enum:  # as protobuf/plan.py
    PB_DOUBLE = 1
    PB_FLOAT = 2
    PB_INT64 = 3
    PB_UINT64 = 4
    PB_INT32 = 5
    PB_FIXED64 = 6
    PB_FIXED32 = 7
    PB_BOOL = 8
    PB_STRING = 9
    PB_MESSAGE = 11
    PB_BYTES = 12
    PB_UINT32 = 13
    PB_ENUM = 14
    PB_SFIXED32 = 15
    PB_SFIXED64 = 16
    PB_SINT32 = 17
    PB_SINT64 = 18
    PB_TIMESTAMP = 19
    PB_DURATION = 20
    PB_EMPTY = 21

cdef enum:
    WIRE_VARINT = 0
    WIRE_FIXED64 = 1
    WIRE_BYTES = 2
    WIRE_GROUP_START = 3
    WIRE_GROUP_END = 4
    WIRE_FIXED32 = 5

cdef enum:
    PB_SINGULAR = 0
    PB_REPEATED = 1
    PB_MAP = 2

cdef enum:  # as protobuf/problems.py
    PB_TRUNCATED = 1
    PB_BAD_VARINT = 2
    PB_BAD_TAG = 3
    PB_BAD_GROUP = 4
    PB_BAD_TEXT = 5
    PB_BAD_ENUM = 6
    PB_BAD_TIME = 7
    PB_NOT_THERE = 8
    PB_BAD_INDEXES = 9
    PB_OTHER_MESSAGE = 10

cdef enum:
    PB_DEPTH_MAX = 100
    PB_INDEXES_MAX = 100
    PB_VARINT_BYTES_MAX = 10
    PB_TAG_BYTES_MAX = 5
    PB_INDEX_LAST_BYTE_MAX = 0x0F
    PB_DIGITS_MAX = 11  # of an int32, with its sign
    PB_MICROS = 1000000

cdef struct PbField:  # as Program.fields
    int64_t number
    int64_t kind
    int64_t wire
    int64_t shape
    int64_t is_required
    int64_t has_presence
    int64_t is_in_root
    int64_t is_always_there
    int64_t one_of
    int64_t message
    int64_t column
    int64_t element
    int64_t enum_index
    int64_t has_default
    int64_t default_raw
    int64_t default_at
    int64_t default_size

cdef struct PbMessage:  # as Program.messages
    int64_t first
    int64_t count

cdef struct PbEnum:  # as Program.enums
    int64_t first
    int64_t count
    int64_t is_closed
    int64_t prefix_at
    int64_t prefix_size

cdef struct PbValue:  # as Program.values
    int64_t number
    int64_t text_at
    int64_t text_size

cdef struct PbSlot:
    bint is_set
    uint64_t raw  # a number
    const uint8_t* start  # a string or bytes
    int64_t size
    int64_t first_part  # of a message, or -1
    int64_t last_part

cdef struct PbPart:
    const uint8_t* start
    const uint8_t* end
    int64_t next

cdef struct PbRun:
    const PbField* fields
    const PbMessage* messages
    const PbEnum* enums
    const PbValue* values
    const uint8_t* text
    Table* table
    PbSlot* slots
    PbPart* parts
    int64_t parts_count
    int64_t parts_max
    int problem  # of the payload that is decoded
    const uint8_t* problem_at
    int64_t problem_field

cdef struct PbInput:
    const uint8_t* at
    const uint8_t* end


cdef bint pb_fail(PbRun* run, int problem, const uint8_t* at, int64_t field) noexcept nogil:
    run.problem = problem
    run.problem_at = at
    run.problem_field = field
    return False


# ---- wire format ----

cdef inline bint pb_varint(PbRun* run, PbInput* input, uint64_t* value) noexcept nogil:
    if input.at < input.end and input.at[0] < 0x80:
        value[0] = input.at[0]
        input.at += 1
        return True
    return pb_long_varint(run, input, value)


cdef bint pb_long_varint(PbRun* run, PbInput* input, uint64_t* value) noexcept nogil:
    cdef const uint8_t* start = input.at
    cdef int64_t count = min(input.end - start, <int64_t>PB_VARINT_BYTES_MAX), place
    cdef uint64_t found = 0
    for place in range(count):
        found |= <uint64_t>(start[place] & 0x7F) << 7 * place
        if start[place] < 0x80:
            value[0] = found
            input.at = start + place + 1
            return True
    return pb_fail(run, PB_BAD_VARINT if count == PB_VARINT_BYTES_MAX else PB_TRUNCATED, start, -1)


cdef inline bint pb_tag(PbRun* run, PbInput* input, uint64_t* number, uint64_t* wire) noexcept nogil:
    cdef const uint8_t* start = input.at
    cdef uint64_t tag
    if not pb_varint(run, input, &tag):
        return False
    number[0] = tag >> 3
    wire[0] = tag & 7
    if input.at - start > PB_TAG_BYTES_MAX or tag > <uint64_t>0xFFFFFFFF or number[0] == 0 or wire[0] > WIRE_FIXED32:
        return pb_fail(run, PB_BAD_TAG, start, -1)
    return True


cdef inline bint pb_take(PbRun* run, PbInput* input, uint64_t size) noexcept nogil:
    if size > <uint64_t>(input.end - input.at):
        return pb_fail(run, PB_TRUNCATED, input.at, -1)
    input.at += size
    return True


cdef inline bint pb_span(PbRun* run, PbInput* input, PbInput* inner) noexcept nogil:
    """Reads a length and the bytes after it."""
    cdef uint64_t size
    if not pb_varint(run, input, &size):
        return False
    inner.at = input.at
    if not pb_take(run, input, size):
        return False
    inner.end = input.at
    return True


cdef inline bint pb_raw(PbRun* run, PbInput* input, int64_t wire, uint64_t* raw) noexcept nogil:
    """Reads a number."""
    cdef uint32_t word
    cdef const uint8_t* start = input.at
    if wire == WIRE_VARINT:
        return pb_varint(run, input, raw)
    if wire == WIRE_FIXED64:
        if not pb_take(run, input, 8):
            return False
        memcpy(raw, start, 8)
        return True
    if not pb_take(run, input, 4):
        return False
    memcpy(&word, start, 4)
    raw[0] = word
    return True


cdef bint pb_skip(PbRun* run, PbInput* input, uint64_t number, uint64_t wire) noexcept nogil:
    """Skips the value of an unknown field, with everything in it if it is a group."""
    cdef uint64_t groups[PB_DEPTH_MAX]
    cdef int depth = 0
    cdef const uint8_t* start
    cdef uint64_t raw
    cdef PbInput inner
    while True:
        start = input.at
        if wire == WIRE_BYTES:
            if not pb_span(run, input, &inner):
                return False
        elif wire == WIRE_GROUP_START:
            if depth == PB_DEPTH_MAX:
                return pb_fail(run, PB_BAD_GROUP, start, -1)
            groups[depth] = number
            depth += 1
        elif wire == WIRE_GROUP_END:
            if depth == 0 or groups[depth - 1] != number:
                return pb_fail(run, PB_BAD_GROUP, start, -1)
            depth -= 1
        elif not pb_raw(run, input, wire, &raw):
            return False
        if depth == 0:
            return True
        if input.at == input.end:
            return pb_fail(run, PB_BAD_GROUP, input.at, -1)
        if not pb_tag(run, input, &number, &wire):
            return False


cdef bint pb_skip_rest(PbRun* run, PbInput input) noexcept nogil:
    cdef uint64_t number, wire
    while input.at < input.end:
        if not pb_tag(run, &input, &number, &wire) or not pb_skip(run, &input, number, wire):
            return False
    return True


# ---- values ----

cdef const PbValue* pb_enum_value(const PbRun* run, const PbEnum* each, int64_t number) noexcept nogil:
    """Returns the value with a number, or NULL."""
    cdef const PbValue* values = run.values + each.first
    cdef int64_t low = 0, high = each.count, middle
    if 0 <= number < each.count and values[number].number == number:
        return values + number
    while low < high:
        middle = (low + high) >> 1
        if values[middle].number < number:
            low = middle + 1
        else:
            high = middle
    return values + low if low < each.count and values[low].number == number else NULL


cdef void pb_put_enum(PbRun* run, const PbField* field, int32_t column, int32_t number) noexcept nogil:
    cdef const PbEnum* each = run.enums + field.enum_index
    cdef const PbValue* value = pb_enum_value(run, each, number)
    cdef Builder* builder
    cdef int64_t size
    cdef uint32_t rest
    cdef char digits[PB_DIGITS_MAX]
    cdef int at = PB_DIGITS_MAX
    if value is not NULL:
        put_bytes(run.table, column, run.text + value.text_at, value.text_size)
        return
    # The name that Java gives to a number that an open enum does not have.
    rest = <uint32_t>number if number >= 0 else 0 - <uint32_t>number
    while rest or at == PB_DIGITS_MAX:
        at -= 1
        digits[at] = <char>(0x30 + rest % 10)
        rest //= 10
    if number < 0:
        at -= 1
        digits[at] = 0x2D
    builder = &run.table.builders[column]
    size = each.prefix_size + PB_DIGITS_MAX - at
    if size > builder.size_max - builder.size and not reserve_bytes(run.table, builder, builder.size + size):
        return
    memcpy(builder.values + builder.size + each.prefix_size, digits + at, PB_DIGITS_MAX - at)
    memcpy(builder.values + builder.size, run.text + each.prefix_at, each.prefix_size)
    builder.size += size
    put_bytes(run.table, column, NULL, 0)


cdef inline void pb_put_number(PbRun* run, const PbField* field, int32_t column, uint64_t raw) noexcept nogil:
    cdef int64_t kind = field.kind
    if kind == PB_INT64 or kind == PB_UINT64 or kind == PB_DOUBLE or kind == PB_FIXED64 or kind == PB_SFIXED64:
        put_int64(run.table, column, <int64_t>raw)
    elif kind == PB_BOOL:
        put_bit(run.table, column, raw != 0)
    elif kind == PB_ENUM:
        pb_put_enum(run, field, column, <int32_t>raw)
    elif kind == PB_SINT32:
        put_int32(run.table, column, <int32_t>(<uint32_t>raw >> 1 ^ (0 - (<uint32_t>raw & 1))))
    elif kind == PB_SINT64:
        put_int64(run.table, column, <int64_t>(raw >> 1 ^ (0 - (raw & 1))))
    else:
        put_int32(run.table, column, <int32_t>raw)


cdef inline bint pb_is_known(PbRun* run, const PbField* field, uint64_t raw, const uint8_t* at, bint* known) noexcept nogil:
    """Finds out whether a number is a value of its enum, if the enum is closed. Returns False if that is an error."""
    known[0] = True
    if field.kind != PB_ENUM or not run.enums[field.enum_index].is_closed:
        return True
    known[0] = pb_enum_value(run, run.enums + field.enum_index, <int32_t>raw) is not NULL
    if not known[0] and field.is_in_root:
        return pb_fail(run, PB_BAD_ENUM, at, field - run.fields)
    return True


cdef inline bint pb_is_zero(const PbField* field, uint64_t raw) noexcept nogil:
    """Whether it is the value that a field without presence has if it is missing."""
    cdef int64_t kind = field.kind
    if kind == PB_INT32 or kind == PB_UINT32 or kind == PB_SINT32 or kind == PB_ENUM:
        return <uint32_t>raw == 0
    return raw == 0


cdef inline bint pb_check_text(PbRun* run, const PbField* field, const PbInput* value) noexcept nogil:
    if field.kind == PB_STRING and not is_utf8(value.at, value.end - value.at):
        return pb_fail(run, PB_BAD_TEXT, value.at, field - run.fields)
    return True


# ---- messages ----

cdef inline void pb_reset(PbRun* run, const PbMessage* message) noexcept nogil:
    cdef PbSlot* slot = run.slots + message.first
    cdef PbSlot* end = slot + message.count
    while slot < end:
        slot.is_set = False
        slot.first_part = -1
        slot += 1


cdef inline const PbField* pb_find(const PbRun* run, const PbMessage* message, uint64_t number, int64_t* place) noexcept nogil:
    """Returns the field with a number, or NULL. `place`: where it is expected, then the place after it."""
    cdef const PbField* fields = run.fields + message.first
    cdef int64_t low, high, middle
    if place[0] < message.count and <uint64_t>fields[place[0]].number == number:
        place[0] += 1
        return fields + place[0] - 1
    low, high = 0, message.count
    while low < high:
        middle = (low + high) >> 1
        if <uint64_t>fields[middle].number < number:
            low = middle + 1
        else:
            high = middle
    if low == message.count or <uint64_t>fields[low].number != number:
        return NULL
    place[0] = low if fields[low].shape != PB_SINGULAR else low + 1
    return fields + low


cdef bint pb_scan(PbRun* run, const PbMessage* message, PbInput input) noexcept nogil:
    """Reads the fields of a message, or of a part of one."""
    cdef uint64_t number = 0, wire = 0
    cdef int64_t place = 0
    cdef const PbField* field
    cdef bint is_read
    while input.at < input.end:
        if not pb_tag(run, &input, &number, &wire):
            return False
        field = pb_find(run, message, number, &place)
        is_read = False
        if field is not NULL:
            if <int64_t>wire == field.wire:
                if field.shape == PB_SINGULAR:
                    is_read = pb_read_singular(run, message, field, &input)
                else:
                    is_read = pb_read_element(run, field, &input)
            elif wire == WIRE_BYTES and field.shape == PB_REPEATED:
                is_read = pb_read_packed(run, field, &input)
            if not is_read and run.problem:
                return False
        if not is_read and not pb_skip(run, &input, number, wire):
            return False
    return True


cdef inline bint pb_read_singular(
    PbRun* run, const PbMessage* message, const PbField* field, PbInput* input
) noexcept nogil:
    """Reads a value into the field's slot. Returns False and reads nothing if it counts as an unknown field."""
    cdef PbSlot* slot = run.slots + (field - run.fields)
    cdef const uint8_t* start = input.at
    cdef PbInput value
    cdef bint is_known
    cdef uint64_t raw
    if field.wire != WIRE_BYTES:
        if not pb_raw(run, input, field.wire, &raw) or not pb_is_known(run, field, raw, start, &is_known):
            return False
        if not is_known:
            input.at = start
            return False
        slot.raw = raw
        slot.is_set = field.has_presence or not pb_is_zero(field, raw)
    else:
        if not pb_span(run, input, &value) or not pb_check_text(run, field, &value):
            return False
        if field.kind == PB_STRING or field.kind == PB_BYTES:
            slot.start = value.at
            slot.size = value.end - value.at
            slot.is_set = field.has_presence or slot.size != 0
        elif field.kind == PB_EMPTY:
            slot.is_set = pb_skip_rest(run, value)
            if not slot.is_set:
                return False
        else:
            slot.is_set = pb_add_part(run, slot, &value)
            if not slot.is_set:
                return False
    if field.one_of >= 0:
        pb_clear_others(run, message, field)
    return True


cdef void pb_clear_others(PbRun* run, const PbMessage* message, const PbField* field) noexcept nogil:
    """Forgets the values of other fields of the same oneof."""
    cdef int64_t index
    for index in range(message.first, message.first + message.count):
        if run.fields[index].one_of == field.one_of and run.fields + index != field:
            run.slots[index].is_set = False
            run.slots[index].first_part = -1


cdef bint pb_add_part(PbRun* run, PbSlot* slot, const PbInput* value) noexcept nogil:
    cdef PbPart* larger
    cdef int64_t index = run.parts_count
    if index == run.parts_max:
        larger = <PbPart*>realloc(run.parts, (2 * index + 64) * sizeof(PbPart))
        if larger is NULL:
            run.table.error = OUT_OF_MEMORY
            return pb_fail(run, PB_TRUNCATED, value.at, -1)
        run.parts = larger
        run.parts_max = 2 * index + 64
    run.parts[index] = PbPart(value.at, value.end, -1)
    if slot.first_part < 0:
        slot.first_part = index
    else:
        run.parts[slot.last_part].next = index
    slot.last_part = index
    run.parts_count += 1
    return True


cdef bint pb_read_packed(PbRun* run, const PbField* field, PbInput* input) noexcept nogil:
    cdef PbInput values
    if not pb_span(run, input, &values):
        return False
    while values.at < values.end:
        if not pb_put_element(run, field, &values):
            return False
    return True


cdef bint pb_put_element(PbRun* run, const PbField* field, PbInput* input) noexcept nogil:
    """Appends a number to a repeated field; leaves out one that a closed enum does not have."""
    cdef const uint8_t* start = input.at
    cdef uint64_t raw
    cdef bint is_known
    if not pb_raw(run, input, field.wire, &raw) or not pb_is_known(run, field, raw, start, &is_known):
        return False
    if is_known:
        pb_put_number(run, field, <int32_t>field.element, raw)
    return True


cdef bint pb_read_element(PbRun* run, const PbField* field, PbInput* input) noexcept nogil:
    """Appends an element of a repeated field, or an entry of a map."""
    cdef PbInput value
    if field.wire != WIRE_BYTES:
        return pb_put_element(run, field, input)
    if not pb_span(run, input, &value) or not pb_check_text(run, field, &value):
        return False
    if field.kind == PB_STRING or field.kind == PB_BYTES:
        put_bytes(run.table, <int32_t>field.element, value.at, value.end - value.at)
        return True
    if field.kind == PB_EMPTY:
        return pb_skip_rest(run, value)
    pb_reset(run, run.messages + field.message)
    return pb_scan(run, run.messages + field.message, value) and pb_put_message(run, field, value.at, value.end)


cdef bint pb_put_message(PbRun* run, const PbField* field, const uint8_t* start, const uint8_t* end) noexcept nogil:
    """Appends a message that has been scanned, the entry of a map, or a time."""
    cdef const PbMessage* message = run.messages + field.message
    cdef const PbSlot* parts = run.slots + message.first
    cdef int64_t seconds, nanos, micros
    if field.kind == PB_MESSAGE:
        if not pb_emit(run, message, end):
            return False
        if field.shape != PB_MAP:
            put_struct(run.table, <int32_t>field.element)
        return True
    seconds = <int64_t>parts[0].raw if parts[0].is_set else run.fields[message.first].default_raw
    nanos = <int32_t>parts[1].raw if parts[1].is_set else run.fields[message.first + 1].default_raw
    micros = nanos // 1000  # truncated, as in Java
    if seconds > INT64_MAX // PB_MICROS + 1 or seconds < INT64_MIN // PB_MICROS - 1:
        return pb_fail(run, PB_BAD_TIME, start, field - run.fields)
    if not pb_micros(seconds, &micros):
        return pb_fail(run, PB_BAD_TIME, start, field - run.fields)
    put_int64(run.table, <int32_t>field.element, micros)
    return True


cdef bint pb_micros(int64_t seconds, int64_t* micros) noexcept nogil:
    """Adds seconds to microseconds. Returns False if the sum does not fit."""
    cdef int64_t whole = seconds + micros[0] // PB_MICROS, rest = micros[0] % PB_MICROS
    if rest < 0:
        whole -= 1
        rest += PB_MICROS
    # whole * PB_MICROS + rest, with 0 <= rest < PB_MICROS
    if whole < 0:
        whole += 1
        rest -= PB_MICROS
    if whole > INT64_MAX // PB_MICROS or whole < INT64_MIN // PB_MICROS:
        return False
    whole *= PB_MICROS
    if whole > INT64_MAX - rest if rest > 0 else whole < INT64_MIN - rest:
        return False
    micros[0] = whole + rest
    return True


cdef bint pb_emit(PbRun* run, const PbMessage* message, const uint8_t* end) noexcept nogil:
    """Appends a value to each column of a message that has been scanned. `end`: where it ends."""
    cdef const PbField* field = run.fields + message.first
    cdef const PbField* last = field + message.count
    cdef PbSlot* slot = run.slots + message.first
    cdef int32_t column
    while field < last:
        column = <int32_t>field.column
        if field.shape != PB_SINGULAR:
            if column >= 0:
                put_list(run.table, column)
        elif slot.is_set or field.is_always_there:
            if not pb_emit_value(run, field, slot, end):
                return False
        elif field.is_required:
            return pb_fail(run, PB_NOT_THERE, end, field - run.fields)
        elif column < 0:
            pass
        elif not field.has_default:
            put_null(run.table, column)
        elif field.wire == WIRE_BYTES:
            put_bytes(run.table, column, run.text + field.default_at, field.default_size)
        else:
            pb_put_number(run, field, column, <uint64_t>field.default_raw)
        field += 1
        slot += 1
    return True


cdef inline bint pb_emit_value(PbRun* run, const PbField* field, const PbSlot* slot, const uint8_t* end) noexcept nogil:
    cdef const uint8_t* start = end
    cdef int64_t part = slot.first_part
    cdef const PbMessage* message
    if field.kind == PB_EMPTY:
        return True
    if field.wire != WIRE_BYTES:
        pb_put_number(run, field, <int32_t>field.column, slot.raw)
        return True
    if field.kind == PB_STRING or field.kind == PB_BYTES:
        put_bytes(run.table, <int32_t>field.column, slot.start, slot.size)
        return True
    message = run.messages + field.message
    if part >= 0:
        start = run.parts[part].start
    pb_reset(run, message)
    while part >= 0:
        end = run.parts[part].end
        if not pb_scan(run, message, PbInput(run.parts[part].start, end)):
            return False
        part = run.parts[part].next
    return pb_put_message(run, field, start, end)


# ---- payloads ----

cdef bint pb_read_indexes(PbRun* run, PbInput* input, const int64_t* expected, int64_t expected_count) noexcept nogil:
    """Reads the message indexes, zigzag varints of 32 bits, and compares them."""
    cdef const uint8_t* start = input.at
    cdef int64_t count = 0, place
    cdef int32_t index
    cdef bint is_other
    if not pb_index(input, &index) or not 0 <= index <= PB_INDEXES_MAX:
        return pb_fail(run, PB_BAD_INDEXES, start, -1)
    count = index
    if count == 0:
        is_other = expected_count != 1 or expected[0] != 0
    else:
        is_other = expected_count != count
        for place in range(count):
            if not pb_index(input, &index) or index < 0:
                return pb_fail(run, PB_BAD_INDEXES, start, -1)
            is_other = is_other or expected[place] != index
    return not is_other or pb_fail(run, PB_OTHER_MESSAGE, start, -1)


cdef bint pb_index(PbInput* input, int32_t* index) noexcept nogil:
    cdef uint32_t found = 0, byte
    cdef int shift = 0
    while input.at < input.end:
        byte = input.at[0]
        input.at += 1
        if shift == 28 and byte > PB_INDEX_LAST_BYTE_MAX:
            return False
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            index[0] = <int32_t>(found >> 1 ^ (0 - (found & 1)))
            return True
        shift += 7
    return False


cdef bint pb_decode_row(
    PbRun* run, PbInput input, int64_t header_bytes, const int64_t* indexes, int64_t indexes_count
) noexcept nogil:
    run.problem = 0
    run.parts_count = 0
    if header_bytes > input.end - input.at:
        return pb_fail(run, PB_TRUNCATED, input.end, -1)
    input.at += header_bytes
    if not pb_read_indexes(run, &input, indexes, indexes_count):
        return False
    pb_reset(run, run.messages)
    return pb_scan(run, run.messages, input) and pb_emit(run, run.messages, input.end)


def decode_protobuf(program, payloads, Py_ssize_t count, Py_ssize_t header_bytes):
    cdef TableOwner owner = TableOwner(program.layout.words)
    cdef View fields = View(program.fields), messages = View(program.messages), enums = View(program.enums)
    cdef View values = View(program.values), text = View(program.text), indexes = View(program.indexes)
    cdef BytesRows rows = BytesRows(payloads, count)
    cdef int64_t indexes_count = indexes.size // <Py_ssize_t>sizeof(int64_t), size
    cdef const uint8_t* start
    cdef Table* table = &owner.table
    cdef PbRun run
    cdef Py_ssize_t row = 0
    cdef dict bad = {}
    memset(&run, 0, sizeof(PbRun))
    run.fields = <const PbField*>fields.start
    run.messages = <const PbMessage*>messages.start
    run.enums = <const PbEnum*>enums.start
    run.values = <const PbValue*>values.start
    run.text = text.start
    run.table = table
    run.slots = <PbSlot*>calloc(fields.size // <Py_ssize_t>sizeof(PbField) + 1, sizeof(PbSlot))
    if run.slots is NULL:
        raise MemoryError
    try:
        with nogil:
            reserve_rows(table, 0, count)
            while row < count and not table.error:
                size = rows.row(row, &start)
                if size < 0:
                    put_null(table, 0)
                elif pb_decode_row(
                    &run, PbInput(start, start + size), header_bytes, <const int64_t*>indexes.start, indexes_count
                ):
                    put_struct(table, 0)
                else:
                    truncate(table, 0, row)
                    put_null(table, 0)
                    with gil:
                        bad[row] = BadRow(run.problem, run.problem_at - start, run.problem_field)
                row += 1
        raise_error(table)
    finally:
        free(run.slots)
        free(run.parts)
    return owner.finish(), bad
