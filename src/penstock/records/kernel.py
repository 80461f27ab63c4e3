"""The interface of the loops over the records of a batch, and the choice between compiled and pure Python loops.

Both implementations behave the same and pass the same tests; tests choose one with `kernel.active = kernel.PURE`.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from penstock.records import _columns_pure
from penstock.records.layout import BinaryColumn, Buffer, HeadersColumn, IntColumn, Ints

REVISION: Final = 5
"""Version of the interface `Kernel`. A compiled extension with another version was built from other sources, and is
not used."""

try:
    import penstock.records._columns as _columns
except ImportError:
    _columns = None
if _columns is not None and getattr(_columns, "REVISION", 0) != REVISION:
    _columns = None  # built from older sources: reinstall to use it


class KeyTable(Protocol):
    """The last offset of every key, for log compaction (the log cleaner's offset map). A key is stored as a keyed
    digest of fixed size."""

    def __len__(self) -> int: ...

    def note(self, body: Buffer, key_at: Ints, key_len: Ints, offsets: Ints) -> None:
        """Sets the last offset of each record's key. Call it in ascending order of offsets. Ignores null keys."""

    def mask(
        self, body: Buffer, key_at: Ints, key_len: Ints, value_len: Ints, offsets: Ints, drop_tombstones: bool
    ) -> bytearray:
        """Returns one byte per record: 1 if the record has a key and the table has no later record of that key, else
        0. With `drop_tombstones`, tombstones get 0, too."""


class Kernel(Protocol):
    """Interface of the loops over the records of a batch: a compiled extension, or its pure Python version.

    Positions are indexes into a decompressed batch body; a position out of range raises an error. `live` has one byte
    per record: a record whose byte is 0 is not examined, and its result is 0.
    """

    def count_records(self, buf: Buffer, start: int, end: int) -> int:
        """Returns how many records fill [start, end), by their length fields; -1 if they do not fill it exactly."""

    def client_header(self, buf: Buffer) -> tuple[int, ...] | None:
        """Returns the fields of a BatchHeader; None if `buf` is not exactly one valid producer batch. Does not
        check the CRC."""

    def decode(
        self,
        body: Buffer,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        same_timestamp: bool,
    ) -> tuple[Ints, ...]:
        """Decodes the `count` records of a body. Returns offsets, timestamps, positions and lengths of keys and of
        values, positions and counts of headers, positions and lengths of records (as `Columns` takes them)."""

    def find_header(self, body: Buffer, at: Ints, count: Ints, name: Buffer) -> tuple[Ints, Ints]:
        """Returns value position and length of each record's first header of that name (-1: null, -2: absent)."""

    def list_headers(self, body: Buffer, at: Ints, count: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Returns the name positions, name lengths, value positions and value lengths of all records' headers."""

    def gather(self, parts: Sequence[tuple[Buffer, Ints, Ints]]) -> tuple[bytes, bytes, bytes, int]:
        """Returns the bytes at (body, positions, lengths) as an Arrow column: offsets, data, validity, null count."""

    def select(
        self, body: Buffer, at: Ints, length: Ints, timestamps: Ints, mask: Buffer
    ) -> tuple[bytes, int, int, int]:
        """Returns the records selected by `mask`, their count, the last one's index and their largest timestamp."""

    def encode(
        self,
        start: int,
        end: int,
        key: BinaryColumn | None,
        value: BinaryColumn | None,
        timestamps: Buffer | None,
        base_timestamp: int,
        headers: HeadersColumn | None,
    ) -> tuple[bytes, int]:
        """Encodes rows [start, end) as records with offset deltas from 0; returns them and the largest timestamp."""

    def spread(
        self,
        count: int,
        rows: Ints | None,
        key: BinaryColumn | None,
        wanted: IntColumn | None,
        partitions: int,
        keyless: int,
    ) -> tuple[Ints, Ints]:
        """Sorts `rows` (if None, the first `count` rows) by partition; returns them and each partition's end index.

        A row's partition is that in `wanted`; if null, by its key (Kafka's murmur2); without a key, `keyless`.
        """

    def encode_rows(
        self,
        rows: Ints,
        start: int,
        end: int,
        first_delta: int,
        room_bytes: int,
        key: BinaryColumn | None,
        value: BinaryColumn | None,
        timestamps: Buffer | None,
        base_timestamp: int,
        headers: HeadersColumn | None,
    ) -> tuple[bytes, int, int]:
        """Encodes rows[start:end] as records, as many as fit into `room_bytes`; offset deltas start at `first_delta`.

        Returns the encoded records, their count, and their largest timestamp.
        """

    # Filters. The column `body, at, length` is that of `Columns` or `find_header`. Each returns a byte per record: 1
    # if it matches, 0 if not, 2 for null. Records whose byte in `live` is 0 are not read and get 0.

    def match_text(self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, op: int, value: Buffer) -> bytes:
        """Returns per record 1 if `body[at:at + length] op value` is true, 0 if not or if its `live` byte is 0, 2
        if null (negative length). `op`: 0 to 5 for = <> < <= > >=."""

    def match_texts(
        self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, values: Sequence[Buffer]
    ) -> bytes:
        """Returns per record 1 if its bytes `body[at:at + length]` are among `values`, 0 if not or if its `live`
        byte is 0, 2 if null (negative length)."""

    def match_flag(self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, wanted: bool) -> bytes:
        """Returns one byte per record: 1 if its text, `true` or `false`, equals `wanted`, 0 if not, 2 if the text is
        null or anything else. Records whose `live` byte is 0 get 0."""

    def match_numbers(
        self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, op: int, values: Sequence[int | float]
    ) -> bytes:
        """Compares the number in each record's text, `body[at:at + length]`. Returns one byte per record: 1 if
        `number op value` is true for any of `values`, 0 if not, 2 if the text is null or not a number. Records
        whose `live` byte is 0 get 0; `live` None: all records are compared. `op`: 0 to 5 for = <> < <= > >=."""

    def match_pieces(
        self,
        body: Buffer,
        at: Ints,
        length: Ints,
        live: Buffer | None,
        pieces: Sequence[Buffer],
        from_start: bool,
        to_end: bool,
    ) -> bytes:
        """Returns one byte per record: 1 if its text contains `pieces` in order (SQL LIKE), 0 if not, 2 if the
        text is null. Records whose `live` byte is 0 get 0; `live` None: all records are compared. `from_start`:
        the text must start with the first piece; `to_end`: it must end with the last piece."""

    def match_ints(self, column: Ints, live: Buffer | None, op: int, value: int) -> bytes:
        """Returns one byte per record: 1 if `column op value` is true, else 0. Records whose `live` byte is 0 also
        get 0; `live` None: all records are compared. `op`: 0 to 5 for = <> < <= > >=."""

    def match_null(self, length: Ints) -> bytes:
        """Returns per record 1 if its `length` is negative (the field is null or absent), else 0."""

    def both(self, a: Buffer, b: Buffer) -> bytes:
        """Combines two match results by SQL's three-valued AND."""

    def either(self, a: Buffer, b: Buffer) -> bytes:
        """Combines two match results by SQL's three-valued OR."""

    def sort_entries(self, entries: bytearray) -> None:
        """Sorts 32-byte entries of delayed messages (delays/entries.py) in place, by their first 16 bytes."""

    def pack_entries(self, batch: Buffer, kind: bytes) -> tuple[bytes, list[tuple[bytes, bytes | None]]]:
        """Returns two values. First, the records whose key is `kind` followed by an offset, without tombstones, as
        32-byte entries (delays/entries.py). Second, all other records that have a key, as (key, value) pairs."""

    def match_schema_ids(self, body: Buffer, at: Ints, length: Ints, known: Ints) -> bytes:
        """Returns one byte per record for its cell, `body[at:at + length]`: 0 if it is null or starts with the magic
        byte 0 and an int32 that is among `known` (ascending), 2 if the int32 is not, 1 for all other bytes."""

    def list_schema_ids(self, body: Buffer, at: Ints, length: Ints, states: Buffer, most: int) -> list[int]:
        """Returns the first `most` different ids of the records whose byte in `states` (from `match_schema_ids`) is
        2, in the order of the records. `most` is at most 1000."""

    def new_key_table(self, secret: bytes) -> KeyTable:
        """Returns an empty key table; the 16-byte secret prevents deliberate hash collisions of keys."""


PURE: Final[Kernel] = _columns_pure
COMPILED: Final[Kernel | None] = _columns

active: Kernel = COMPILED or PURE
