"""The interface of column codecs: decode payloads into an Arrow column of the schema's type, and encode columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.foundation.errors import PenstockError
from penstock.schemas.formats.format import NoColumnType

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CannotEncode", "Decoded", "IncompatibleTypes", "NoColumnType", "ValueDecoder", "ValueEncoder"]


class IncompatibleTypes(PenstockError):
    """A reader schema that cannot read what the writer schema describes, or a column that a schema cannot hold."""


class CannotEncode(PenstockError):
    """A value that does not fit the schema. The message names the row and the field."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"Row {row}: {reason}")
        self.row = row


class Decoded(NamedTuple):
    """Decoded payloads."""

    values: pa.Array
    """One element per payload; null if the payload is null or cannot be decoded."""
    bad: Mapping[int, str]
    """Reasons by row, for payloads that cannot be decoded. Null payloads are not in it."""


class ValueDecoder(Protocol):
    """Decodes payloads of one writer schema into the column type of a reader schema."""

    @property
    def type(self) -> pa.DataType:
        """The type of the decoded column."""

    def decode(self, payloads: pa.BinaryArray, header_bytes: int) -> Decoded:
        """Decodes each payload after its first `header_bytes` bytes: 5 for Confluent's magic byte and schema id."""


class ValueEncoder(Protocol):
    """Encodes the elements of a column as payloads of one schema."""

    def encode(self, values: pa.Array, header: bytes) -> pa.BinaryArray:
        """Returns one payload per element, each beginning with `header`; a null element becomes a null payload.

        Raises CannotEncode if a value does not fit the schema.
        """
