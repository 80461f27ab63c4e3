"""The interface of the loops over the values of columns, and the choice between compiled and pure Python loops.

Both implementations behave the same and pass the same tests; tests choose one with `kernel.active = kernel.PURE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from penstock.records.layout import BinaryColumn
from penstock.schemas.columns import _kernel_pure
from penstock.schemas.columns.layout import BadRow, FilledColumn, SourceColumn

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.schemas.columns.avro.program import Program
    from penstock.schemas.columns.protobuf.encoding_program import EncodingProgram
    from penstock.schemas.columns.protobuf.program import Program as ProtobufProgram

REVISION: Final = 2
"""Version of the interface `Kernel`. A compiled extension with another version was built from other sources, and is
not used."""

try:
    import penstock.schemas.columns._kernel as _kernel
except ImportError:
    _kernel = None
if _kernel is not None and getattr(_kernel, "REVISION", 0) != REVISION:
    _kernel = None  # built from older sources: reinstall to use it


class Kernel(Protocol):
    """Interface of the loops over the values of columns: a compiled extension, or its pure Python version."""

    def decode_avro(
        self, program: Program, payloads: BinaryColumn, count: int, header_bytes: int
    ) -> tuple[list[FilledColumn], dict[int, BadRow]]:
        """Decodes `count` payloads. Returns the columns of the program's layout, and what is wrong with bad rows."""

    def encode_avro(
        self, program: Program, columns: Sequence[SourceColumn], count: int, header: bytes
    ) -> FilledColumn | BadRow:
        """Encodes `count` rows of columns, one for each of the program's layout, as a column of bytes.

        Each begins with `header`. Rows whose first column is null are null. Returns the first row that cannot be
        encoded, if there is one; its `position` is the row.
        """

    def decode_protobuf(
        self, program: ProtobufProgram, payloads: BinaryColumn, count: int, header_bytes: int
    ) -> tuple[list[FilledColumn], dict[int, BadRow]]:
        """Decodes `count` payloads. Returns the columns of the program's layout, and what is wrong with bad rows."""

    def encode_protobuf(self, program: EncodingProgram, values: pa.Array, header: bytes) -> FilledColumn | int:
        """Encodes the rows of a column of the plan's type as a column of bytes; each begins with `header`. Returns the
        first row that cannot be encoded, if there is one."""


PURE: Final[Kernel] = _kernel_pure
COMPILED: Final[Kernel | None] = _kernel

active: Kernel = COMPILED or PURE
