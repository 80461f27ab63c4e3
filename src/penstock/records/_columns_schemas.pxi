# Part of _columns.pyx: ids of schemas in front of keys and values; the counterpart of `_columns_schemas_pure.py`.

cdef enum:
    SCHEMA_MAGIC = 0
    SCHEMA_ID_BYTES = 5  # the magic byte and a big-endian int32
    KNOWN_ID = 0
    NO_ID = 1
    UNKNOWN_ID = 2


cdef inline int32_t schema_id(const uint8_t* cell) noexcept nogil:
    return <int32_t>(<uint32_t>cell[1] << 24 | <uint32_t>cell[2] << 16 | <uint32_t>cell[3] << 8 | cell[4])


cdef inline bint contains(const int32_t* values, Py_ssize_t count, int32_t wanted) noexcept nogil:
    """Returns whether an ascending array has a value."""
    cdef Py_ssize_t low = 0, middle
    while low < count:
        middle = (low + count) // 2
        if values[middle] < wanted:
            low = middle + 1
        elif values[middle] > wanted:
            count = middle
        else:
            return True
    return False


def match_schema_ids(body, at, length, known):
    cdef Slices cells = Slices(body, at, length)
    cdef View ids = View(known)
    cdef const int32_t* values = <const int32_t*>ids.start
    cdef Py_ssize_t row, count = ids.size // sizeof(int32_t)
    cdef const uint8_t* cell
    cdef int32_t found, last = 0
    cdef bint has_last = False
    states = PyBytes_FromStringAndSize(NULL, cells.rows)
    cdef uint8_t* state = <uint8_t*>PyBytes_AS_STRING(states)
    for row in range(cells.rows):
        if cells.sizes[row] < 0:
            state[row] = KNOWN_ID
            continue
        cells.check(row)
        cell = cells.body.start + cells.starts[row]
        if cells.sizes[row] < SCHEMA_ID_BYTES or cell[0] != SCHEMA_MAGIC:
            state[row] = NO_ID
            continue
        found = schema_id(cell)
        if has_last and found == last:
            state[row] = KNOWN_ID
        elif contains(values, count, found):
            state[row], last, has_last = KNOWN_ID, found, True
        else:
            state[row] = UNKNOWN_ID
    return states


def list_schema_ids(body, at, length, states, int most):
    cdef Slices cells = Slices(body, at, length)
    cdef View wanted = View(states)
    cdef Py_ssize_t row, number, count = 0
    cdef int32_t found
    if wanted.size != cells.rows:
        raise ValueError(f"{wanted.size} bytes say which of {cells.rows} records are wanted")
    if not 0 <= most <= 1000:
        raise ValueError(f"{most} ids are too many to list")
    cdef int32_t ids[1000]
    for row in range(cells.rows):
        if wanted.start[row] != UNKNOWN_ID:
            continue
        cells.check(row)
        if cells.sizes[row] < SCHEMA_ID_BYTES:
            raise ValueError(f"{cells.sizes[row]} bytes have no schema id")
        found = schema_id(cells.body.start + cells.starts[row])
        for number in range(count):
            if ids[number] == found:
                break
        else:
            if count == most:
                break
            ids[count] = found
            count += 1
    return [ids[number] for number in range(count)]
