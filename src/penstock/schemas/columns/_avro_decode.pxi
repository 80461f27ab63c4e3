# Part of _kernel.pyx: runs the instructions of an Avro decoder, for each payload. See avro/operations.py for them.


cdef enum Read:  # as operations.Read
    READ_END = 0
    READ_NULL = 1
    READ_BOOLEAN = 2
    READ_INT = 3
    READ_LONG = 4
    READ_SCALED = 5
    READ_TIME = 6
    READ_LONG_AS_FLOAT = 7
    READ_LONG_AS_DOUBLE = 8
    READ_FLOAT = 9
    READ_FLOAT_AS_DOUBLE = 10
    READ_DOUBLE = 11
    READ_STRING = 12
    READ_BYTES = 13
    READ_FIXED = 14
    READ_ENUM = 15
    READ_DECIMAL = 16
    READ_STRUCT = 17
    READ_LIST = 18
    READ_MAP = 19
    READ_OPTION = 20
    READ_UNION = 21
    READ_JUMP = 22
    READ_DEFAULT = 23
    READ_FAIL = 24
    READ_SKIP = 25
    READ_SKIP_VARINT = 26
    READ_SKIP_BYTES = 27
    READ_SKIP_LIST = 28
    READ_CALL = 29


cdef enum Reason:  # as operations.Reason
    FINE = 0
    REASON_ENDS = 1
    REASON_VARINT = 2
    REASON_INT = 3
    REASON_LENGTH = 4
    REASON_UTF8 = 5
    REASON_BRANCH = 6
    REASON_SYMBOL = 7
    REASON_UNKNOWN_SYMBOL = 8
    REASON_BOOLEAN = 9
    REASON_DECIMAL = 10
    REASON_RANGE = 11
    REASON_COUNT = 12
    REASON_EMPTY_ITEMS = 13
    REASON_DUPLICATE = 14
    REASON_DEPTH = 15
    REASON_TRAILING = 16
    REASON_UNREADABLE = 17
    REASON_HEADER = 18


cdef enum:
    ZERO_BYTE_ITEMS_MAX = 1000  # see operations.py for these
    SKIP_DEPTH_MAX = 200
    COMPARED_KEYS_MAX = 12  # maps with more keys are sorted to find duplicates

cdef int64_t DAY_NS = 86_400_000_000_000


cdef struct Step:
    int64_t operation
    int64_t column
    int64_t a
    int64_t b


cdef struct Text:
    const uint8_t* start
    int64_t size  # -1: None


@cython.final
cdef class Constants:
    """The constants of a program: bytes, or None. Keeps them alive."""

    cdef tuple owners
    cdef Text* texts

    def __cinit__(self, tuple owners):
        cdef Py_ssize_t index
        cdef bytes owner
        self.owners = owners
        self.texts = <Text*>calloc(max(len(owners), 1), sizeof(Text))
        if self.texts is NULL:
            raise MemoryError
        for index in range(len(owners)):
            owner = owners[index]
            self.texts[index].size = -1
            if owner is not None:
                self.texts[index].start = <const uint8_t*><const char*>owner
                self.texts[index].size = len(owner)

    def __dealloc__(self):
        free(self.texts)


cdef struct Reader:
    const uint8_t* at
    const uint8_t* end
    const Step* steps
    const Text* constants
    Table* table
    int64_t empty_items  # so far in this payload
    int32_t depth
    # What is wrong with the payload, where, and which instruction found out.
    int32_t reason
    const uint8_t* bad_at
    int64_t bad_step


cdef inline int32_t read_long(Reader* reader, int64_t* value) noexcept nogil:
    """Reads a zigzag varint. Returns a Reason, as all these functions do."""
    cdef uint64_t raw
    if reader.at < reader.end and reader.at[0] < 0x80:
        raw = reader.at[0]
        reader.at += 1
        value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
        return FINE
    return read_longer(reader, value)


cdef int32_t read_longer(Reader* reader, int64_t* value) noexcept nogil:
    cdef uint64_t raw = 0, byte
    cdef int shift = 0
    cdef const uint8_t* at = reader.at
    while at < reader.end:
        byte = at[0]
        at += 1
        if shift == 63 and byte > 1:
            return REASON_VARINT
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            reader.at = at
            value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return FINE
        shift += 7
    return REASON_ENDS


cdef inline int32_t read_integer(Reader* reader, bint is_int, int64_t* value) noexcept nogil:
    cdef int32_t reason = read_long(reader, value)
    if reason == FINE and is_int and not INT32_MIN <= value[0] <= INT32_MAX:
        return REASON_INT
    return reason


cdef inline int32_t read_size(Reader* reader, int64_t* size) noexcept nogil:
    """Reads the length of bytes that follow, and are there."""
    cdef int32_t reason = read_long(reader, size)
    if reason != FINE:
        return reason
    if size[0] < 0:
        return REASON_LENGTH
    return FINE if size[0] <= reader.end - reader.at else REASON_ENDS


cdef inline int32_t read_bytes(Reader* reader, int32_t column, bint is_text) noexcept nogil:
    cdef int64_t size
    cdef int32_t reason = read_size(reader, &size)
    if reason != FINE:
        return reason
    if is_text and not is_utf8(reader.at, size):
        return REASON_UTF8
    put_bytes(reader.table, column, reader.at, size)
    reader.at += size
    return FINE


cdef int32_t read_decimal(Reader* reader, const Step* step) noexcept nogil:
    cdef int64_t size = step.b
    cdef int32_t reason = FINE
    cdef int128 value
    if size < 0:
        reason = read_size(reader, &size)
    elif size > reader.end - reader.at:
        reason = REASON_ENDS
    if reason != FINE:
        return reason
    if not from_big_endian(reader.at, size, &value) or not has_digits(value, step.a):
        return REASON_DECIMAL
    put_int128(reader.table, step.column, <uint64_t>value, <uint64_t>(value >> 64))
    reader.at += size
    return FINE


cdef int32_t read_time(Reader* reader, const Step* step) noexcept nogil:
    cdef int64_t value
    cdef int32_t reason = read_integer(reader, step.a, &value)
    if reason != FINE:
        return reason
    if step.operation == READ_TIME:
        if value < 0 or value >= DAY_NS // step.b:
            return REASON_RANGE
    elif value > INT64_MAX // step.b or value < -(INT64_MAX // step.b):
        return REASON_RANGE
    put_int64(reader.table, step.column, value * step.b)
    return FINE


cdef int32_t read_count(Reader* reader, int64_t item_bytes, int64_t* count, int64_t* size) noexcept nogil:
    """Reads the number of items in a block, 0 after the last one, and its size in bytes, -1 if it is not given."""
    cdef int32_t reason = read_long(reader, count)
    size[0] = -1
    if reason != FINE:
        return reason
    if count[0] < 0:
        if count[0] == INT64_MIN:
            return REASON_COUNT
        count[0] = -count[0]
        reason = read_size(reader, size)
        if reason != FINE:
            return reason
    if item_bytes:
        return FINE if count[0] <= (reader.end - reader.at) // item_bytes else REASON_COUNT
    if count[0] > ZERO_BYTE_ITEMS_MAX - reader.empty_items:
        return REASON_EMPTY_ITEMS
    reader.empty_items += count[0]
    return FINE


cdef bint failed(Reader* reader, int32_t reason, int64_t step, const uint8_t* at) noexcept nogil:
    reader.reason = reason
    reader.bad_step = step
    reader.bad_at = at
    return False


cdef bint read_items(Reader* reader, int64_t pc) noexcept nogil:
    """Reads or skips the blocks of an array or a map, whose instruction is at `pc`."""
    cdef const Step* step = &reader.steps[pc]
    cdef const uint8_t* at = reader.at
    cdef int64_t count, size
    cdef int32_t reason
    cdef int32_t keys = -1
    cdef int64_t first = 0
    if step.operation == READ_MAP:
        keys = reader.table.builders[step.column].child
        first = reader.table.builders[keys].length
    while True:
        at = reader.at
        reason = read_count(reader, step.b, &count, &size)
        if reason != FINE:
            return failed(reader, reason, pc, at)
        if count == 0:
            break
        if step.operation == READ_SKIP_LIST:
            if size >= 0:
                reader.at += size
                continue
            if step.b == 0:
                continue
        while count:
            if not run(reader, pc + 1) or reader.table.error:
                return False
            count -= 1
    if keys >= 0 and has_duplicates(reader.table, keys, first):
        return failed(reader, REASON_DUPLICATE, pc, at)
    if step.operation != READ_SKIP_LIST:
        put_list(reader.table, step.column)
    return True


cdef int compare_texts(const void* one, const void* other) noexcept nogil:
    cdef const Text* a = <const Text*>one
    cdef const Text* b = <const Text*>other
    if a.size != b.size:
        return 1 if a.size > b.size else -1
    return memcmp(a.start, b.start, a.size)


cdef bint has_duplicates(Table* table, int32_t column, int64_t first) noexcept nogil:
    """Whether a text occurs twice among the values of a column from `first` on."""
    cdef Builder* keys = &table.builders[column]
    cdef int64_t count = keys.length - first, one, other
    cdef Text few[COMPARED_KEYS_MAX]
    cdef Text* texts = few
    cdef bint found = False
    if count < 2:
        return False
    if count > COMPARED_KEYS_MAX:
        texts = <Text*>malloc(count * sizeof(Text))
        if texts is NULL:
            table.error = OUT_OF_MEMORY
            return False
    for one in range(count):
        texts[one].start = keys.values + keys.offsets[first + one]
        texts[one].size = keys.offsets[first + one + 1] - keys.offsets[first + one]
    if count > COMPARED_KEYS_MAX:
        qsort(texts, count, sizeof(Text), compare_texts)
        for one in range(count - 1):
            found = found or compare_texts(&texts[one], &texts[one + 1]) == 0
        free(texts)
        return found
    for one in range(count):
        for other in range(one):
            found = found or compare_texts(&texts[one], &texts[other]) == 0
    return found


cdef bint run(Reader* reader, int64_t pc) noexcept nogil:
    """Runs the instructions from `pc` to the END; returns whether the payload is valid so far."""
    cdef const Step* step
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef const Text* constant
    cdef int32_t column, reason
    cdef int64_t value
    cdef uint32_t bits
    cdef uint64_t long_bits
    cdef float single
    while True:
        step = &reader.steps[pc]
        column = <int32_t>step.column
        at = reader.at
        reason = FINE
        if step.operation == READ_END:
            return True
        elif step.operation == READ_NULL:
            put_null(reader.table, column)
        elif step.operation == READ_BOOLEAN:
            if reader.at == reader.end:
                reason = REASON_ENDS
            elif reader.at[0] > 1:
                reason = REASON_BOOLEAN
            else:
                put_bit(reader.table, column, reader.at[0])
                reader.at += 1
        elif step.operation == READ_INT:
            reason = read_integer(reader, True, &value)
            if reason == FINE:
                put_int32(reader.table, column, <int32_t>value)
        elif step.operation == READ_LONG:
            reason = read_integer(reader, step.a, &value)
            if reason == FINE:
                put_int64(reader.table, column, value)
        elif step.operation == READ_SCALED or step.operation == READ_TIME:
            reason = read_time(reader, step)
        elif step.operation == READ_LONG_AS_FLOAT:
            reason = read_integer(reader, step.a, &value)
            if reason == FINE:
                put_float(reader.table, column, <float>value)
        elif step.operation == READ_LONG_AS_DOUBLE:
            reason = read_integer(reader, step.a, &value)
            if reason == FINE:
                put_double(reader.table, column, <double>value)
        elif step.operation == READ_FLOAT or step.operation == READ_FLOAT_AS_DOUBLE:
            if reader.end - reader.at < 4:
                reason = REASON_ENDS
            elif step.operation == READ_FLOAT:
                memcpy(&bits, reader.at, 4)
                put_int32(reader.table, column, <int32_t>bits)
                reader.at += 4
            else:
                memcpy(&single, reader.at, 4)
                put_double(reader.table, column, single)
                reader.at += 4
        elif step.operation == READ_DOUBLE:
            if reader.end - reader.at < 8:
                reason = REASON_ENDS
            else:
                memcpy(&long_bits, reader.at, 8)
                put_int64(reader.table, column, <int64_t>long_bits)
                reader.at += 8
        elif step.operation == READ_STRING:
            reason = read_bytes(reader, column, True)
        elif step.operation == READ_BYTES:
            reason = read_bytes(reader, column, False)
        elif step.operation == READ_FIXED:
            if step.a > reader.end - reader.at:
                reason = REASON_ENDS
            else:
                put_bytes(reader.table, column, reader.at, step.a)
                reader.at += step.a
        elif step.operation == READ_ENUM:
            reason = read_long(reader, &value)
            if reason == FINE:
                if value < 0 or value >= step.b:
                    reason = REASON_SYMBOL
                else:
                    constant = &reader.constants[step.a + value]
                    if constant.size < 0:
                        reason = REASON_UNKNOWN_SYMBOL
                    else:
                        put_bytes(reader.table, column, constant.start, constant.size)
        elif step.operation == READ_DECIMAL:
            reason = read_decimal(reader, step)
        elif step.operation == READ_STRUCT:
            put_struct(reader.table, column)
        elif step.operation == READ_LIST or step.operation == READ_MAP or step.operation == READ_SKIP_LIST:
            if not read_items(reader, pc):
                return False
            pc = step.a
            continue
        elif step.operation == READ_OPTION:
            reason = read_long(reader, &value)
            if reason == FINE:
                if value < 0 or value > 1:
                    reason = REASON_BRANCH
                elif value == step.a:
                    put_null(reader.table, column)
                    pc = step.b
                    continue
        elif step.operation == READ_UNION:
            reason = read_long(reader, &value)
            if reason == FINE:
                if value < 0 or value >= step.a:
                    reason = REASON_BRANCH
                else:
                    pc = reader.steps[pc + 1 + value].a
                    continue
        elif step.operation == READ_JUMP:
            pc = step.a
            continue
        elif step.operation == READ_DEFAULT:
            constant = &reader.constants[step.a]
            end = reader.end
            reader.at = constant.start
            reader.end = constant.start + constant.size
            if not run(reader, pc + 1):
                reader.bad_at = at
                return False
            reader.at = at
            reader.end = end
            pc = step.b
            continue
        elif step.operation == READ_FAIL:
            reason = REASON_UNREADABLE
        elif step.operation == READ_SKIP:
            if step.a > reader.end - reader.at:
                reason = REASON_ENDS
            else:
                reader.at += step.a
        elif step.operation == READ_SKIP_VARINT:
            reason = read_long(reader, &value)
        elif step.operation == READ_SKIP_BYTES:
            reason = read_size(reader, &value)
            if reason == FINE:
                reader.at += value
        elif step.operation == READ_CALL:
            if reader.depth == SKIP_DEPTH_MAX:
                reason = REASON_DEPTH
            else:
                reader.depth += 1
                if not run(reader, step.a):
                    return False
                reader.depth -= 1
        if reason != FINE:
            return failed(reader, reason, pc, at)
        pc += 1


def decode_avro(program, payloads, Py_ssize_t count, Py_ssize_t header_bytes):
    cdef TableOwner owner = TableOwner(program.layout.words)
    cdef View steps = View(program.steps)
    cdef Constants constants = Constants(program.constants)
    cdef BytesRows rows = BytesRows(payloads, count)
    cdef Table* table = &owner.table
    cdef Reader reader
    cdef const uint8_t* start
    cdef Py_ssize_t row = 0
    cdef int64_t size
    cdef bint is_bad
    cdef dict bad = {}
    memset(&reader, 0, sizeof(Reader))
    reader.steps = <const Step*>steps.start
    reader.constants = constants.texts
    reader.table = table
    with nogil:
        reserve_rows(table, 0, count)
        while row < count and not table.error:
            size = rows.row(row, &start)
            if size < 0:
                put_null(table, 0)
                row += 1
                continue
            reader.at = start + min(header_bytes, size)
            reader.end = start + size
            reader.empty_items = 0
            reader.depth = 0
            if size < header_bytes:
                is_bad = not failed(&reader, REASON_HEADER, 0, start)
            elif not run(&reader, 0):
                is_bad = True
            else:
                is_bad = reader.at != reader.end and not failed(&reader, REASON_TRAILING, 0, reader.at)
            if is_bad and not table.error:
                truncate(table, 0, row)
                put_null(table, 0)
                with gil:
                    bad[row] = BadRow(reader.reason, reader.bad_at - start, reader.bad_step)
            row += 1
    raise_error(table)
    return owner.finish(), bad
