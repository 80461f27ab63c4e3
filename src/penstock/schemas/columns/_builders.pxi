# Part of _kernel.pyx: columns that grow value by value and become Arrow buffers, without a Python object per value.
#
# A decoder has one Builder per column, numbered in the order of `layout.Layout`: a struct comes before its fields, a
# list before its items. To decode a row, it calls one `put_…` function for every column of the row:
#
#   - a struct: `put_struct`, and a value (or null) for each of its fields, in any order;
#   - a list or map: values for its items (of a map: for its keys and its values), then `put_list`;
#   - null: only `put_null` of the column itself, which also fills the fields of a struct with placeholders.
#
# If the row turns out to be bad, `truncate(table, 0, row)` removes all that was put since the row's start, also the
# items of lists; `put_null(table, 0)` then makes it null.
#
# No function raises. If memory or Arrow's 32-bit offsets are exhausted, `table.error` is set, and stays set: check it
# after each row with `raise_error`. Values that are put after an error are dropped.


cdef enum Kind:  # as layout.Kind
    KIND_NULL = 0  # only nulls
    KIND_BIT = 1
    KIND_FIXED = 2  # values of 4, 8 or 16 bytes
    KIND_BYTES = 3  # bytes or text
    KIND_LIST = 4  # a list with one child, or a map with two: keys and values
    KIND_STRUCT = 5


cdef enum TableError:
    OK = 0
    OUT_OF_MEMORY = 1
    TOO_LARGE = 2


cdef struct Builder:
    int32_t kind
    int32_t width  # of KIND_FIXED, in bytes
    bint is_nullable
    int32_t child  # the first child, or -1
    int32_t sibling  # the next child of the same parent, or -1
    int64_t length  # values so far
    int64_t capacity  # values for which memory is allocated
    uint8_t* validity  # one bit per value; NULL if the column is not nullable
    uint8_t* values
    int32_t* offsets  # of KIND_BYTES and KIND_LIST: length + 1 entries
    int64_t size  # of KIND_BYTES: bytes in `values`
    int64_t size_max  # of KIND_BYTES: bytes allocated for `values`


cdef struct Table:
    Builder* builders
    int32_t count
    int32_t error  # a TableError


@cython.final
cdef class Block:
    """Memory from malloc that a column is made of. Owns it."""

    cdef void* start
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.start, self.size, True, flags)

    def __dealloc__(self):
        free(self.start)


cdef object block_of(void* start, Py_ssize_t size):
    """Returns an owner of the memory; frees what is allocated beyond `size`."""
    cdef Block block
    if size == 0:
        free(start)
        return b""
    block = Block.__new__(Block)
    block.start = realloc(start, size)
    if block.start is NULL:
        block.start = start  # an allocator that cannot shrink
    block.size = size
    return block


@cython.final
cdef class TableOwner:
    """Creates the builders of a layout (see `layout.Layout.words`), and releases their memory."""

    cdef Table table

    def __cinit__(self, layout):
        cdef View words = View(layout)
        cdef const int32_t* word = <const int32_t*>words.start
        cdef int32_t index
        cdef Builder* builder
        self.table.error = OK
        self.table.count = words.size // (5 * sizeof(int32_t))
        self.table.builders = <Builder*>calloc(max(self.table.count, 1), sizeof(Builder))
        if self.table.builders is NULL:
            raise MemoryError
        for index in range(self.table.count):
            builder = &self.table.builders[index]
            builder.kind = word[0]
            builder.width = word[1]
            builder.is_nullable = word[2]
            builder.child = word[3]
            builder.sibling = word[4]
            word += 5

    def __dealloc__(self):
        cdef int32_t index
        if self.table.builders is not NULL:
            for index in range(self.table.count):
                free(self.table.builders[index].validity)
                free(self.table.builders[index].values)
                free(self.table.builders[index].offsets)
            free(self.table.builders)

    cdef list finish(self):
        """Returns the columns, as `Layout.to_arrow` takes them. Call it once."""
        cdef list columns = []
        cdef int32_t index
        cdef Builder* builder
        for index in range(self.table.count):
            builder = &self.table.builders[index]
            if not reserve(&self.table, index, max(builder.length, 1)):
                raise_error(&self.table)
            validity = offsets = values = None
            if builder.is_nullable and builder.kind != KIND_NULL:
                validity = block_of(builder.validity, (builder.length + 7) >> 3)
                builder.validity = NULL
            if builder.offsets is not NULL:
                offsets = block_of(builder.offsets, (builder.length + 1) * sizeof(int32_t))
                builder.offsets = NULL
            if builder.kind in (KIND_BIT, KIND_FIXED, KIND_BYTES):
                values = block_of(builder.values, values_size(builder))
                builder.values = NULL
            columns.append(FilledColumn(builder.length, validity, offsets, values))
        return columns


cdef int64_t values_size(const Builder* builder) noexcept nogil:
    if builder.kind == KIND_BIT:
        return (builder.length + 7) >> 3
    return builder.length * builder.width if builder.kind == KIND_FIXED else builder.size


cdef int raise_error(const Table* table) except -1:
    """Raises the error that occurred, if any."""
    if table.error == OUT_OF_MEMORY:
        raise MemoryError
    if table.error == TOO_LARGE:
        raise MessageTooLarge(f"a column has more than {INT32_MAX} bytes or items: decode fewer payloads at a time")
    return 0


# ---- memory ----

cdef bint resized(Table* table, void** block, int64_t size) noexcept nogil:
    cdef void* larger = realloc(block[0], size)
    if larger is NULL:
        table.error = OUT_OF_MEMORY
        return False
    block[0] = larger
    return True


cdef bint reserve(Table* table, int32_t index, int64_t capacity) noexcept nogil:
    """Allocates memory for that many values in all, without the bytes of KIND_BYTES."""
    cdef Builder* builder = &table.builders[index]
    cdef bint is_new = builder.capacity == 0
    if capacity <= builder.capacity:
        return True
    capacity = (capacity + 63) & ~63
    if builder.is_nullable and builder.kind != KIND_NULL:
        if not resized(table, <void**>&builder.validity, capacity >> 3):
            return False
    if builder.kind == KIND_BIT:
        if not resized(table, <void**>&builder.values, capacity >> 3):
            return False
    elif builder.kind == KIND_FIXED:
        if not resized(table, <void**>&builder.values, capacity * builder.width):
            return False
    elif builder.kind == KIND_BYTES or builder.kind == KIND_LIST:
        if not resized(table, <void**>&builder.offsets, (capacity + 1) * sizeof(int32_t)):
            return False
        if is_new:
            builder.offsets[0] = 0
    builder.capacity = capacity
    return True


cdef void reserve_rows(Table* table, int32_t index, int64_t rows) noexcept nogil:
    """Allocates memory for that many values of a column and of all columns that have one value for each of them."""
    cdef int32_t child
    reserve(table, index, rows)
    if table.builders[index].kind == KIND_STRUCT:
        child = table.builders[index].child
        while child >= 0:
            reserve_rows(table, child, rows)
            child = table.builders[child].sibling


cdef bint reserve_bytes(Table* table, Builder* builder, int64_t size) noexcept nogil:
    if size > INT32_MAX:
        table.error = TOO_LARGE
        return False
    size = min(max(size, 2 * builder.size_max, 256), <int64_t>INT32_MAX)
    if not resized(table, <void**>&builder.values, size):
        return False
    builder.size_max = size
    return True


# ---- values ----

cdef inline Builder* slot(Table* table, int32_t index) noexcept nogil:
    """Returns the builder with memory for another value; NULL if there is none."""
    cdef Builder* builder = &table.builders[index]
    if builder.length == builder.capacity and not reserve(table, index, 2 * builder.capacity + 64):
        return NULL
    return builder


cdef inline void set_bit(uint8_t* bits, int64_t index, bint value) noexcept nogil:
    cdef uint8_t mask = 1 << (index & 7)
    bits[index >> 3] = (bits[index >> 3] & ~mask) | (mask if value else 0)


cdef inline void added(Builder* builder, bint is_valid) noexcept nogil:
    """Counts a value whose content has been written."""
    if builder.validity is not NULL:
        set_bit(builder.validity, builder.length, is_valid)
    builder.length += 1


cdef inline void put_bit(Table* table, int32_t index, bint value) noexcept nogil:
    cdef Builder* builder = slot(table, index)
    if builder is not NULL:
        set_bit(builder.values, builder.length, value)
        added(builder, True)


cdef inline void put_int32(Table* table, int32_t index, int32_t value) noexcept nogil:
    cdef Builder* builder = slot(table, index)
    if builder is not NULL:
        (<int32_t*>builder.values)[builder.length] = value
        added(builder, True)


cdef inline void put_int64(Table* table, int32_t index, int64_t value) noexcept nogil:
    cdef Builder* builder = slot(table, index)
    if builder is not NULL:
        (<int64_t*>builder.values)[builder.length] = value
        added(builder, True)


cdef inline void put_float(Table* table, int32_t index, float value) noexcept nogil:
    cdef Builder* builder = slot(table, index)
    if builder is not NULL:
        (<float*>builder.values)[builder.length] = value
        added(builder, True)


cdef inline void put_double(Table* table, int32_t index, double value) noexcept nogil:
    cdef Builder* builder = slot(table, index)
    if builder is not NULL:
        (<double*>builder.values)[builder.length] = value
        added(builder, True)


cdef inline void put_int128(Table* table, int32_t index, uint64_t low, uint64_t high) noexcept nogil:
    """Appends a decimal: the unscaled value in two's complement."""
    cdef Builder* builder = slot(table, index)
    if builder is not NULL:
        (<uint64_t*>builder.values)[2 * builder.length] = low
        (<uint64_t*>builder.values)[2 * builder.length + 1] = high
        added(builder, True)


cdef inline void put_bytes(Table* table, int32_t index, const uint8_t* start, int64_t size) noexcept nogil:
    """Appends a copy of the bytes. Of a text column they must be UTF-8: see `is_utf8`."""
    cdef Builder* builder = slot(table, index)
    if builder is NULL:
        return
    if size > builder.size_max - builder.size and not reserve_bytes(table, builder, builder.size + size):
        return
    if size:
        memcpy(builder.values + builder.size, start, size)
    builder.size += size
    builder.offsets[builder.length + 1] = <int32_t>builder.size
    added(builder, True)


cdef inline void put_struct(Table* table, int32_t index) noexcept nogil:
    cdef Builder* builder = slot(table, index)
    if builder is not NULL:
        added(builder, True)


cdef inline void put_list(Table* table, int32_t index) noexcept nogil:
    """Appends a list of the items that were put since the last one."""
    cdef Builder* builder = slot(table, index)
    if builder is NULL:
        return
    if table.builders[builder.child].length > INT32_MAX:
        table.error = TOO_LARGE
        return
    builder.offsets[builder.length + 1] = <int32_t>table.builders[builder.child].length
    added(builder, True)


cdef void put_null(Table* table, int32_t index) noexcept nogil:
    """Appends null, or the zero of its type to a column that is not nullable: a placeholder in a null struct."""
    cdef Builder* builder = slot(table, index)
    cdef int32_t child
    if builder is NULL:
        return
    if builder.kind == KIND_BIT:
        set_bit(builder.values, builder.length, False)
    elif builder.kind == KIND_FIXED:
        memset(builder.values + builder.length * builder.width, 0, builder.width)
    elif builder.kind == KIND_BYTES or builder.kind == KIND_LIST:
        builder.offsets[builder.length + 1] = builder.offsets[builder.length]
    elif builder.kind == KIND_STRUCT:
        child = builder.child
        while child >= 0:
            put_null(table, child)
            child = table.builders[child].sibling
    added(builder, False)


cdef void truncate(Table* table, int32_t index, int64_t length) noexcept nogil:
    """Removes all values after the first `length`, with the items or fields that belong to them."""
    cdef Builder* builder = &table.builders[index]
    cdef int32_t child = builder.child
    cdef int64_t kept = length
    if builder.offsets is not NULL:
        kept = builder.offsets[length]
    builder.length = length
    if builder.kind == KIND_BYTES:
        builder.size = kept
    while child >= 0:
        truncate(table, child, kept)
        child = table.builders[child].sibling


# ---- text ----

cdef bint is_utf8(const uint8_t* at, int64_t size) noexcept nogil:
    """Whether the bytes are UTF-8, as Python and Arrow define it: no surrogates, nothing longer than necessary."""
    cdef const uint8_t* end = at + size
    cdef uint64_t word
    cdef uint32_t first, low, high
    cdef int more
    while at < end:
        if end - at >= 8:
            memcpy(&word, at, 8)
            if not word & <uint64_t>0x8080808080808080:
                at += 8
                continue
        first = at[0]
        at += 1
        if first < 0x80:
            continue
        low, high = 0x80, 0xBF  # of the second byte
        if first < 0xC2 or first > 0xF4:
            return False
        if first < 0xE0:
            more = 1
        elif first < 0xF0:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        else:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        if end - at < more or at[0] < low or at[0] > high:
            return False
        if more > 1 and (at[1] & 0xC0) != 0x80:
            return False
        if more > 2 and (at[2] & 0xC0) != 0x80:
            return False
        at += more
    return True
