"""The per-record work, done by one of two twins: compiled if the extension was built, else pure Python.

Both do the same and pass the same tests; tests choose one with `kernel.active = kernel.PURE`.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from penstock.records import _columns_pure
from penstock.records.layout import BinaryColumn, Buffer, HeadersColumn, IntColumn, Ints

REVISION: Final = 4
"""Counted up with every change of what the twins offer."""

try:
    import penstock.records._columns as _columns
except ImportError:
    _columns = None
if _columns is not None and getattr(_columns, "REVISION", 0) != REVISION:
    _columns = None  # it was built from older sources: install again to have it


class KeyTable(Protocol):
    """The last offset of every key that was noted. Keys are known by a keyed digest, whatever their length."""

    def __len__(self) -> int: ...

    def note(self, body: Buffer, key_at: Ints, key_len: Ints, offsets: Ints) -> None:
        """These records come after all that were noted before; those without a key are passed over."""

    def mask(
        self, body: Buffer, key_at: Ints, key_len: Ints, value_len: Ints, offsets: Ints, drop_tombstones: bool
    ) -> bytearray:
        """A byte for each record: 1 if it has a key and, as far as this table knows, no later one has the same."""


class Kernel(Protocol):
    """What both twins do. Positions are into a decompressed body; bad ones raise, they are never followed."""

    def count_records(self, buf: Buffer, start: int, end: int) -> int:
        """How many records fill [start, end) exactly, going by their lengths; -1 if they do not."""

    def client_header(self, buf: Buffer) -> tuple[int, ...] | None:
        """The fields of a BatchHeader, if `buf` is one batch as producers may send it; its CRC is not looked at."""

    def decode(
        self,
        body: Buffer,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        same_timestamp: bool,
    ) -> tuple[Ints, ...]:
        """The columns of `Columns`, in its order from `offsets` on."""

    def find_header(self, body: Buffer, at: Ints, count: Ints, name: Buffer) -> tuple[Ints, Ints]:
        """Position and length of the value of each record's first such header (-1 null, -2 absent)."""

    def list_headers(self, body: Buffer, at: Ints, count: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Name position, name length, value position, value length of all headers of all records in turn."""

    def gather(self, parts: Sequence[tuple[Buffer, Ints, Ints]]) -> tuple[bytes, bytes, bytes, int]:
        """The bytes at (body, positions, lengths) as one Arrow column: offsets, data, validity, nulls."""

    def select(
        self, body: Buffer, at: Ints, length: Ints, timestamps: Ints, mask: Buffer
    ) -> tuple[bytes, int, int, int]:
        """The records chosen by `mask`, their number, the last one's index, their greatest timestamp."""

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
        """Rows [start, end) as records with offset deltas from 0 on, and their greatest timestamp."""

    def spread(
        self,
        count: int,
        rows: Ints | None,
        key: BinaryColumn | None,
        wanted: IntColumn | None,
        partitions: int,
        keyless: int,
    ) -> tuple[Ints, Ints]:
        """Rows (None: the first `count`) by partition, in order, and where those of each partition end.

        A row goes where it is wanted, else where its key goes (murmur2, as Kafka has it), else to `keyless`.
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
        """Rows rows[start:end] as records with offset deltas from `first_delta` on, as many as there is room for.

        The records, how many they are, and their greatest timestamp.
        """

    # Filters. The column `body, at, length` is that of `Columns` or `find_header`. A byte for each record: 1 if it
    # matches, 0 if not, 2 where there is nothing to compare. Where the byte in `live` is 0, it is 0 without a look.

    def match_text(self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, op: int, value: Buffer) -> bytes:
        """Bytes compared with a value; `op` is 0 to 5 for =, <>, <, <=, >, >=."""

    def match_texts(
        self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, values: Sequence[Buffer]
    ) -> bytes:
        """Whether the bytes are among these values."""

    def match_flag(self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, wanted: bool) -> bytes:
        """Whether the bytes say true, or false; 2 if they say neither."""

    def match_numbers(
        self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, op: int, values: Sequence[int | float]
    ) -> bytes:
        """Bytes read as a decimal number and compared with any of these; 2 where they are none."""

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
        """Whether the bytes hold these pieces one after another, the first at their start, the last at their end."""

    def match_ints(self, column: Ints, live: Buffer | None, op: int, value: int) -> bytes:
        """A column of 64-bit numbers compared with a value."""

    def match_null(self, length: Ints) -> bytes:
        """Whether there is nothing in a column."""

    def both(self, a: Buffer, b: Buffer) -> bytes:
        """SQL's AND of two such results."""

    def either(self, a: Buffer, b: Buffer) -> bytes:
        """SQL's OR."""

    def sort_entries(self, entries: bytearray) -> None:
        """Put entries of 32 bytes (delays/entries.py) in the order of their first 16."""

    def pack_entries(self, batch: Buffer, kind: bytes) -> tuple[bytes, list[tuple[bytes, bytes | None]]]:
        """Of an uncompressed batch: its records of a kind as entries, less those that are gone; and all others."""

    def new_key_table(self, secret: bytes) -> KeyTable:
        """An empty table; the secret has 16 bytes, so that nobody can make two keys meet."""


PURE: Final[Kernel] = _columns_pure
COMPILED: Final[Kernel | None] = _columns

active: Kernel = COMPILED or PURE
