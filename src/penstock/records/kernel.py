"""The per-record work, done by one of two twins: compiled if the extension was built, else pure Python.

Both do the same and pass the same tests; tests choose one with `kernel.active = kernel.PURE`.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from penstock.records import _columns_pure
from penstock.records.layout import BinaryColumn, Buffer, HeadersColumn, Ints

try:
    import penstock.records._columns as _columns
except ImportError:
    _columns = None


class Kernel(Protocol):
    """What both twins do. Positions are into a decompressed body; bad ones raise, they are never followed."""

    def count_records(self, buf: Buffer, start: int, end: int) -> int:
        """How many records fill [start, end) exactly, going by their lengths; -1 if they do not."""

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


PURE: Final[Kernel] = _columns_pure
COMPILED: Final[Kernel | None] = _columns

active: Kernel = COMPILED or PURE
