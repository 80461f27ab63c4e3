# ---- the log cleaner's offset map: the last offset of every key ----

cdef struct Digest:
    uint64_t high
    uint64_t low


cdef struct Slot:
    Digest digest
    int64_t offset  # -1: empty


cdef inline uint64_t rotate(uint64_t value, int bits) noexcept nogil:
    return value << bits | value >> (64 - bits)


cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotate(v[1], 13) ^ v[0]
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] = rotate(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotate(v[1], 17) ^ v[2]
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] = rotate(v[2], 32)


cdef inline Digest sip_hash(const uint8_t* data, Py_ssize_t size, uint64_t key0, uint64_t key1) noexcept nogil:
    """128-bit SipHash-2-4: without the secret, clients cannot create collisions."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Py_ssize_t at = 0
    cdef int byte
    cdef Digest digest
    v[0] = key0 ^ 0x736F6D6570736575ULL
    v[1] = key1 ^ 0x646F72616E646F6DULL ^ 0xEE
    v[2] = key0 ^ 0x6C7967656E657261ULL
    v[3] = key1 ^ 0x7465646279746573ULL
    while size - at >= 8:
        memcpy(&word, data + at, 8)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
        at += 8
    word = (<uint64_t>size) << 56
    for byte in range(<int>(size - at)):
        word |= (<uint64_t>data[at + byte]) << (8 * byte)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xEE
    for byte in range(4):
        sip_round(v)
    digest.high = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for byte in range(4):
        sip_round(v)
    digest.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    return digest


cdef class KeyTable:
    """A hash table with open addressing in one block, doubled at three quarters full: 24 bytes per slot."""

    cdef Slot* slots
    cdef Py_ssize_t size
    cdef Py_ssize_t used
    cdef uint64_t key0
    cdef uint64_t key1

    def __cinit__(self, bytes secret):
        if len(secret) != 16:
            raise ValueError("the secret has 16 bytes")
        memcpy(&self.key0, PyBytes_AS_STRING(secret), 8)
        memcpy(&self.key1, PyBytes_AS_STRING(secret) + 8, 8)
        self.slots = new_slots(1024)
        if self.slots == NULL:
            raise MemoryError
        self.size = 1024

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.used

    def note(self, body, key_at, key_len, offsets):
        cdef KeyRows rows = KeyRows(body, key_at, key_len, offsets)
        cdef Py_ssize_t row
        cdef int32_t length
        for row in range(rows.rows):
            length = rows.length(row)
            if length >= 0:
                if self.used * 4 >= self.size * 3:
                    self.grow()
                self.put(sip_hash(rows.key(row), length, self.key0, self.key1), rows.offset(row))

    def mask(self, body, key_at, key_len, value_len, offsets, bint drop_tombstones):
        cdef KeyRows rows = KeyRows(body, key_at, key_len, offsets)
        cdef View values = View(value_len)
        cdef Py_ssize_t row
        cdef int32_t length
        cdef Slot* slot
        cdef bytearray out = bytearray(rows.rows)
        if values.size != rows.rows * 4:
            raise ValueError("columns of different lengths")
        for row in range(rows.rows):
            length = rows.length(row)
            if length < 0 or (drop_tombstones and (<const int32_t*>values.start)[row] < 0):
                continue
            slot = self.find(sip_hash(rows.key(row), length, self.key0, self.key1))
            out[row] = slot.offset < 0 or rows.offset(row) >= slot.offset
        return out

    cdef Slot* find(self, Digest digest) noexcept:
        """Returns the slot of this digest, or the empty one to insert it into."""
        cdef Py_ssize_t at = <Py_ssize_t>(digest.high & <uint64_t>(self.size - 1))
        cdef Slot* slot = &self.slots[at]
        while slot.offset >= 0 and (slot.digest.high != digest.high or slot.digest.low != digest.low):
            at = (at + 1) & (self.size - 1)
            slot = &self.slots[at]
        return slot

    cdef void put(self, Digest digest, int64_t offset) noexcept:
        cdef Slot* slot = self.find(digest)
        if slot.offset < 0:
            slot.digest = digest
            self.used += 1
        slot.offset = offset

    cdef int grow(self) except -1:
        cdef Slot* old = self.slots
        cdef Py_ssize_t count = self.size, number
        cdef Slot* fresh = new_slots(count * 2)
        if fresh == NULL:
            raise MemoryError
        self.slots = fresh
        self.size = count * 2
        self.used = 0
        for number in range(count):
            if old[number].offset >= 0:
                self.put(old[number].digest, old[number].offset)
        free(old)
        return 0


cdef class KeyRows:
    """Columns of keys and offsets; every key is checked to lie within the body."""

    cdef View body
    cdef View at
    cdef View lengths
    cdef View offsets
    cdef Py_ssize_t rows

    def __cinit__(self, body, key_at, key_len, offsets):
        cdef Py_ssize_t row
        cdef int32_t at, length
        self.body = View(body)
        self.at = View(key_at)
        self.lengths = View(key_len)
        self.offsets = View(offsets)
        self.rows = self.at.size // 4
        if self.lengths.size != self.rows * 4 or self.offsets.size != self.rows * 8:
            raise ValueError("columns of different lengths")
        for row in range(self.rows):
            at = (<const int32_t*>self.at.start)[row]
            length = self.length(row)
            if length > 0 and (at < 0 or at > self.body.size - length):
                raise CorruptMessage("a key lies outside its body")
            if self.offset(row) < 0:
                raise CorruptMessage("an offset is negative")

    cdef inline int32_t length(self, Py_ssize_t row) noexcept:
        return (<const int32_t*>self.lengths.start)[row]

    cdef inline int64_t offset(self, Py_ssize_t row) noexcept:
        return (<const int64_t*>self.offsets.start)[row]

    cdef inline const uint8_t* key(self, Py_ssize_t row) noexcept:
        return self.body.start + (<const int32_t*>self.at.start)[row]


cdef Slot* new_slots(Py_ssize_t count) noexcept:
    cdef Py_ssize_t number
    cdef Slot* slots = <Slot*>malloc(count * sizeof(Slot))
    if slots != NULL:
        for number in range(count):
            slots[number].offset = -1
    return slots


def new_key_table(bytes secret):
    return KeyTable(secret)
