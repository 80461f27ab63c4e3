# Part of _columns.pyx: filters of columns; the counterpart of `_columns_filter_pure.py`.
#
# Each returns a byte per record: FALSE, TRUE, or UNKNOWN for null, as in SQL. Records whose byte in `live` is 0 are
# not read and get FALSE.

cdef extern from "string.h":
    void* memmem(const void* haystack, size_t haystack_len, const void* needle, size_t needle_len) nogil

cdef extern from "Python.h":
    ctypedef struct PyObject
    double PyOS_string_to_double(const char* text, char** end, PyObject* overflow) except? -1.0

cdef enum:
    FALSE = 0
    TRUE = 1
    UNKNOWN = 2
    EQ = 0
    NE = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5
    NUMBER_BYTES_MAX = 64
    LINEAR_MAX = 8  # up to this many values are compared one by one; more are hashed


cdef inline uint8_t holds(int op, int order) noexcept nogil:
    """Returns whether the operator holds for operands that compare as `order` (-1, 0 or 1)."""
    if op == EQ:
        return order == 0
    if op == NE:
        return order != 0
    if op == LT:
        return order < 0
    if op == LE:
        return order <= 0
    if op == GT:
        return order > 0
    return order >= 0


@cython.final
cdef class Cells:
    """A column of bytes, the rows to examine, and the results."""

    cdef Slices cells
    cdef View live
    cdef bytes states
    cdef uint8_t* state
    cdef Py_ssize_t rows

    def __cinit__(self, body, at, length, live):
        self.cells = Slices(body, at, length)
        self.rows = self.cells.rows
        self.live = None if live is None else View(live)
        if live is not None and self.live.size != self.rows:
            raise ValueError(f"{self.live.size} bytes say which of {self.rows} records are wanted")
        self.states = PyBytes_FromStringAndSize(NULL, self.rows)
        self.state = <uint8_t*>PyBytes_AS_STRING(self.states)

    cdef inline const uint8_t* open(self, Py_ssize_t row, int32_t* length) except? NULL:
        """Returns the start of a row's bytes; for a null or skipped row sets its state and the length -1."""
        length[0] = -1
        if self.live is not None and not self.live.start[row]:
            self.state[row] = FALSE
            return NULL
        if self.cells.sizes[row] < 0:
            self.state[row] = UNKNOWN
            return NULL
        self.cells.check(row)
        length[0] = self.cells.sizes[row]
        return self.cells.body.start + self.cells.starts[row]


cdef inline int order_of(const uint8_t* a, Py_ssize_t a_len, const uint8_t* b, Py_ssize_t b_len) noexcept nogil:
    cdef int order = memcmp(a, b, <size_t>min(a_len, b_len))
    if order == 0:
        return (a_len > b_len) - (a_len < b_len)
    return 1 if order > 0 else -1


def match_text(body, at, length, live, int op, value):
    cdef Cells column = Cells(body, at, length, live)
    cdef View wanted = View(value)
    cdef const uint8_t* cell
    cdef int32_t size
    cdef Py_ssize_t row
    for row in range(column.rows):
        cell = column.open(row, &size)
        if size < 0:
            continue
        if op <= NE and size != wanted.size:
            column.state[row] = op == NE
        else:
            column.state[row] = holds(op, order_of(cell, size, wanted.start, wanted.size))
    return column.states


cdef inline uint32_t hash_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """FNV-1a, unkeyed: collisions could only slow down the filter whose author chose the values."""
    cdef uint32_t value = 2166136261
    cdef Py_ssize_t at
    for at in range(size):
        value = (value ^ data[at]) * 16777619
    return value


@cython.final
cdef class TextSet:
    """A set of byte values."""

    cdef list views
    cdef int32_t* slots
    cdef uint32_t mask
    cdef Py_ssize_t count

    def __cinit__(self, values):
        cdef View view
        cdef uint32_t slot, room = 4
        cdef Py_ssize_t number
        self.slots = NULL
        self.views = [View(value) for value in values]
        self.count = len(self.views)
        if self.count <= LINEAR_MAX:
            return
        while room < 4 * self.count:
            room *= 2
        self.mask = room - 1
        self.slots = <int32_t*>malloc(room * sizeof(int32_t))
        if self.slots == NULL:
            raise MemoryError
        memset(self.slots, 0xFF, room * sizeof(int32_t))
        for number in range(self.count):
            view = self.views[number]
            slot = hash_of(view.start, view.size) & self.mask
            while self.slots[slot] >= 0:
                slot = (slot + 1) & self.mask
            self.slots[slot] = <int32_t>number

    def __dealloc__(self):
        free(self.slots)

    cdef bint has(self, const uint8_t* data, Py_ssize_t size):
        cdef View view
        cdef Py_ssize_t number
        cdef uint32_t slot
        if self.slots == NULL:
            for number in range(self.count):
                view = <View>self.views[number]
                if view.size == size and memcmp(view.start, data, size) == 0:
                    return True
            return False
        slot = hash_of(data, size) & self.mask
        while self.slots[slot] >= 0:
            view = <View>self.views[self.slots[slot]]
            if view.size == size and memcmp(view.start, data, size) == 0:
                return True
            slot = (slot + 1) & self.mask
        return False


def match_texts(body, at, length, live, values):
    cdef Cells column = Cells(body, at, length, live)
    cdef TextSet wanted = TextSet(values)
    cdef const uint8_t* cell
    cdef int32_t size
    cdef Py_ssize_t row
    for row in range(column.rows):
        cell = column.open(row, &size)
        if size >= 0:
            column.state[row] = wanted.has(cell, size)
    return column.states


def match_flag(body, at, length, live, bint wanted):
    cdef Cells column = Cells(body, at, length, live)
    cdef const uint8_t* cell
    cdef int32_t size
    cdef Py_ssize_t row
    for row in range(column.rows):
        cell = column.open(row, &size)
        if size < 0:
            continue
        if size == 4 and spells(cell, b"true", 4):
            column.state[row] = wanted
        elif size == 5 and spells(cell, b"false", 5):
            column.state[row] = not wanted
        else:
            column.state[row] = UNKNOWN
    return column.states


cdef inline bint spells(const uint8_t* data, const char* word, int size) noexcept nogil:
    """Returns whether the bytes are that word, ignoring case."""
    cdef int at
    for at in range(size):
        if data[at] | 0x20 != <uint8_t>word[at]:
            return False
    return True


cdef struct Number:
    bint is_whole
    int64_t whole
    double real


cdef inline Py_ssize_t digits(const uint8_t* data, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """Returns the end of the digits that begin at `at`."""
    while at < size and 48 <= data[at] <= 57:
        at += 1
    return at


cdef bint is_number(const uint8_t* data, Py_ssize_t size, bint* is_whole) noexcept nogil:
    """Returns whether all of it is a decimal number, with optional sign, fraction and exponent."""
    cdef Py_ssize_t at = 0, first, end
    is_whole[0] = True
    if size == 0 or size > NUMBER_BYTES_MAX:
        return False
    if data[0] == 43 or data[0] == 45:  # plus, minus
        at = 1
    first = at
    at = digits(data, at, size)
    end = at - first
    if at < size and data[at] == 46:  # a point
        is_whole[0] = False
        first = at + 1
        at = digits(data, first, size)
        end += at - first
    if end == 0:
        return False
    if at < size and (data[at] | 0x20) == 101:  # e
        is_whole[0] = False
        at += 1
        if at < size and (data[at] == 43 or data[at] == 45):
            at += 1
        first = at
        at = digits(data, at, size)
        if at == first:
            return False
    return at == size


cdef bint read_number(const uint8_t* data, Py_ssize_t size, Number* number) except -1:
    """Parses a number; returns False if it is none. An integer that fits 64 bits stays exact."""
    cdef char text[NUMBER_BYTES_MAX + 1]
    cdef bint is_whole
    cdef uint64_t value = 0, limit
    cdef Py_ssize_t at
    if not is_number(data, size, &is_whole):
        return False
    if is_whole:
        at = 1 if data[0] == 43 or data[0] == 45 else 0
        limit = <uint64_t>INT64_MAX + (1 if data[0] == 45 else 0)
        while at < size:
            if value > (limit - (data[at] - 48)) // 10:
                is_whole = False
                break
            value = value * 10 + (data[at] - 48)
            at += 1
    number.is_whole = is_whole
    if is_whole:
        number.whole = <int64_t>(0 - value) if data[0] == 45 else <int64_t>value
        number.real = <double>number.whole
        return True
    memcpy(text, data, size)
    text[size] = 0
    number.real = PyOS_string_to_double(text, NULL, NULL)  # too large is infinite
    return True


cdef inline int order_of_numbers(Number* a, Number* b) noexcept nogil:
    """Compares integers exactly, others as doubles."""
    if a.is_whole and b.is_whole:
        return (a.whole > b.whole) - (a.whole < b.whole)
    return (a.real > b.real) - (a.real < b.real)


def match_numbers(body, at, length, live, int op, values):
    cdef Cells column = Cells(body, at, length, live)
    cdef Py_ssize_t row, each, count = len(values)
    cdef const uint8_t* cell
    cdef int32_t size
    cdef Number found
    cdef Number* wanted = <Number*>malloc(max(1, count) * sizeof(Number))
    if wanted == NULL:
        raise MemoryError
    try:
        for each in range(count):
            value = values[each]
            wanted[each].is_whole = isinstance(value, int)
            wanted[each].whole = value if wanted[each].is_whole else 0
            wanted[each].real = <double>wanted[each].whole if wanted[each].is_whole else value
        for row in range(column.rows):
            cell = column.open(row, &size)
            if size < 0:
                continue
            if not read_number(cell, size, &found):
                column.state[row] = UNKNOWN
                continue
            column.state[row] = FALSE
            for each in range(count):
                if holds(op, order_of_numbers(&found, &wanted[each])):
                    column.state[row] = TRUE
                    break
    finally:
        free(wanted)
    return column.states


def match_pieces(body, at, length, live, pieces, bint from_start, bint to_end):
    cdef Cells column = Cells(body, at, length, live)
    cdef list views = [View(each_piece) for each_piece in pieces]
    cdef View piece
    cdef const uint8_t* cell
    cdef const uint8_t* end
    cdef const uint8_t* found
    cdef int32_t size
    cdef Py_ssize_t row, each, count = len(views)
    if count == 0:
        raise ValueError("a pattern has at least one piece")
    for row in range(column.rows):
        cell = column.open(row, &size)
        if size < 0:
            continue
        end = cell + size
        column.state[row] = TRUE
        for each in range(count):
            piece = <View>views[each]
            found = cell
            if piece.size > end - cell:
                column.state[row] = FALSE
            elif each == 0 and from_start:
                if memcmp(cell, piece.start, piece.size) != 0 or (count == 1 and to_end and piece.size != size):
                    column.state[row] = FALSE
            elif each == count - 1 and to_end:
                found = end - piece.size
                if memcmp(found, piece.start, piece.size) != 0:
                    column.state[row] = FALSE
            elif piece.size:
                found = <const uint8_t*>memmem(cell, end - cell, piece.start, piece.size)
                if found == NULL:
                    column.state[row] = FALSE
            if not column.state[row]:
                break
            cell = found + piece.size
    return column.states


def match_ints(column, live, int op, int64_t value):
    cdef View numbers = View(column)
    cdef View wanted = None if live is None else View(live)
    cdef const int64_t* number = <const int64_t*>numbers.start
    cdef Py_ssize_t row, rows = numbers.size // <Py_ssize_t>sizeof(int64_t)
    if live is not None and wanted.size != rows:
        raise ValueError(f"{wanted.size} bytes say which of {rows} records are wanted")
    states = PyBytes_FromStringAndSize(NULL, rows)
    cdef uint8_t* state = <uint8_t*>PyBytes_AS_STRING(states)
    for row in range(rows):
        if live is not None and not wanted.start[row]:
            state[row] = FALSE
        else:
            state[row] = holds(op, (number[row] > value) - (number[row] < value))
    return states


def match_null(length):
    cdef View lengths = View(length)
    cdef const int32_t* size = <const int32_t*>lengths.start
    cdef Py_ssize_t row, rows = lengths.size // <Py_ssize_t>sizeof(int32_t)
    states = PyBytes_FromStringAndSize(NULL, rows)
    cdef uint8_t* state = <uint8_t*>PyBytes_AS_STRING(states)
    for row in range(rows):
        state[row] = size[row] < 0
    return states


def both(a, b):
    """AND: false where either is false, else unknown where either is unknown."""
    cdef View left = View(a), right = View(b)
    cdef Py_ssize_t row
    if left.size != right.size:
        raise ValueError(f"{left.size} and {right.size} records cannot be put together")
    states = PyBytes_FromStringAndSize(NULL, left.size)
    cdef uint8_t* state = <uint8_t*>PyBytes_AS_STRING(states)
    for row in range(left.size):
        state[row] = 0 if not left.start[row] or not right.start[row] else (left.start[row] | right.start[row]) & 2 or 1
    return states


def either(a, b):
    """OR: true where either is true, else unknown where either is unknown."""
    cdef View left = View(a), right = View(b)
    cdef Py_ssize_t row
    if left.size != right.size:
        raise ValueError(f"{left.size} and {right.size} records cannot be put together")
    states = PyBytes_FromStringAndSize(NULL, left.size)
    cdef uint8_t* state = <uint8_t*>PyBytes_AS_STRING(states)
    for row in range(left.size):
        state[row] = 1 if left.start[row] == 1 or right.start[row] == 1 else left.start[row] | right.start[row]
    return states
