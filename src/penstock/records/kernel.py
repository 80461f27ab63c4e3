"""The interface of the per-record loops, and the choice between the compiled extension and pure Python.

Both implementations behave the same and pass the same tests; tests choose one with `kernel.active = kernel.PURE`.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from penstock.records import _columns_pure
from penstock.records.layout import BinaryColumn, Buffer, HeadersColumn, IntColumn, Ints

REVISION: Final = 4
"""Incremented with every change of the interface."""

try:
    import penstock.records._columns as _columns
except ImportError:
    _columns = None
if _columns is not None and getattr(_columns, "REVISION", 0) != REVISION:
    _columns = None  # built from older sources: reinstall to use it


class KeyTable(Protocol):
    """The last offset of every key, by a keyed digest of fixed size (the log cleaner's offset map)."""

    def __len__(self) -> int: ...

    def note(self, body: Buffer, key_at: Ints, key_len: Ints, offsets: Ints) -> None:
        """Records the offsets of records that come after all earlier ones; ignores those without a key."""

    def mask(
        self, body: Buffer, key_at: Ints, key_len: Ints, value_len: Ints, offsets: Ints, drop_tombstones: bool
    ) -> bytearray:
        """Returns a byte per record: 1 if it has a key and this table knows no later record with the same key."""


class Kernel(Protocol):
    """The functions of both implementations. Positions are into a decompressed body; out of range they raise."""

    def count_records(self, buf: Buffer, start: int, end: int) -> int:
        """Returns how many records fill [start, end) exactly, by their length fields; -1 if they do not."""

    def client_header(self, buf: Buffer) -> tuple[int, ...] | None:
        """Returns the fields of a BatchHeader; None if `buf` is not one valid batch of a producer. Ignores the
        CRC."""

    def decode(
        self,
        body: Buffer,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        same_timestamp: bool,
    ) -> tuple[Ints, ...]:
        """Returns the columns of `Columns`, in its order from `offsets` on."""

    def find_header(self, body: Buffer, at: Ints, count: Ints, name: Buffer) -> tuple[Ints, Ints]:
        """Returns position and length of the value of each record's first such header (-1 null, -2 absent)."""

    def list_headers(self, body: Buffer, at: Ints, count: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Returns name position, name length, value position, value length of all headers of all records in order."""

    def gather(self, parts: Sequence[tuple[Buffer, Ints, Ints]]) -> tuple[bytes, bytes, bytes, int]:
        """Returns the bytes at (body, positions, lengths) as one Arrow column: offsets, data, validity, nulls."""

    def select(
        self, body: Buffer, at: Ints, length: Ints, timestamps: Ints, mask: Buffer
    ) -> tuple[bytes, int, int, int]:
        """Returns the records chosen by `mask`, their number, the last one's index, their greatest timestamp."""

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
        """Encodes rows [start, end) as records, offset deltas from 0; returns them and their greatest timestamp."""

    def spread(
        self,
        count: int,
        rows: Ints | None,
        key: BinaryColumn | None,
        wanted: IntColumn | None,
        partitions: int,
        keyless: int,
    ) -> tuple[Ints, Ints]:
        """Returns rows (None: the first `count`) sorted by partition, and the end index of each partition.

        The partition of a row is `wanted`, else by its key (Kafka's murmur2), else `keyless`.
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
        """Encodes rows[start:end] as records, offset deltas from `first_delta`, as many as fit into `room_bytes`.

        Returns the records, how many they are, and their greatest timestamp.
        """

    # Filters. The column `body, at, length` is that of `Columns` or `find_header`. Each returns a byte per record: 1
    # if it matches, 0 if not, 2 for null. Records whose byte in `live` is 0 are not read and get 0.

    def match_text(self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, op: int, value: Buffer) -> bytes:
        """Compares bytes with a value; `op` is 0 to 5 for =, <>, <, <=, >, >=."""

    def match_texts(
        self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, values: Sequence[Buffer]
    ) -> bytes:
        """Matches bytes that are among these values."""

    def match_flag(self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, wanted: bool) -> bytes:
        """Matches the text true, or false; 2 for any other text."""

    def match_numbers(
        self, body: Buffer, at: Ints, length: Ints, live: Buffer | None, op: int, values: Sequence[int | float]
    ) -> bytes:
        """Compares bytes, parsed as a decimal number, with any of these; 2 where they are not a number."""

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
        """Matches bytes that contain these pieces in order (LIKE), the first at the start, the last at the end."""

    def match_ints(self, column: Ints, live: Buffer | None, op: int, value: int) -> bytes:
        """Compares a column of 64-bit numbers with a value."""

    def match_null(self, length: Ints) -> bytes:
        """Matches null cells of a column."""

    def both(self, a: Buffer, b: Buffer) -> bytes:
        """Combines two results by SQL's AND."""

    def either(self, a: Buffer, b: Buffer) -> bytes:
        """Combines two results by SQL's OR."""

    def sort_entries(self, entries: bytearray) -> None:
        """Sorts entries of 32 bytes (delays/entries.py) by their first 16 bytes."""

    def pack_entries(self, batch: Buffer, kind: bytes) -> tuple[bytes, list[tuple[bytes, bytes | None]]]:
        """Returns the records of a kind in an uncompressed batch as entries, without tombstones; and all others."""

    def new_key_table(self, secret: bytes) -> KeyTable:
        """Returns an empty table; the secret of 16 bytes prevents deliberate collisions of keys."""


PURE: Final[Kernel] = _columns_pure
COMPILED: Final[Kernel | None] = _columns

active: Kernel = COMPILED or PURE
