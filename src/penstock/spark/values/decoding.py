"""Decodes columns of payloads: finds the writer's schema of each payload, and groups payloads by it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.foundation.errors import PenstockError
from penstock.schemas.columns.codec import Decoded
from penstock.spark.values.framing import HEADER_BYTES, find_schema_ids
from penstock.spark.values.options import PartOptions, RegistryAccess
from penstock.spark.values.registry import Registry
from penstock.spark.values.schemas import SchemaText

if TYPE_CHECKING:
    from penstock.schemas.columns.codec import ValueDecoder

K = TypeVar("K")
V = TypeVar("V")

DECODERS_MAX: Final = 256
"""Number of decoders that a process keeps: one for each pair of a writer's and a reader's schema."""
UNKNOWN_MAX: Final = 10_000
"""Number of schema ids that a task remembers as unknown."""


class ColumnDecoder(Protocol):
    """Decodes a column of keys or values."""

    def decode(self, payloads: pa.BinaryArray) -> Decoded: ...


class TextDecoder:
    """Decodes UTF-8 texts."""

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        try:
            return Decoded(payloads.cast(pa.string()), {})
        except pa.ArrowInvalid:
            pass
        bad: dict[int, str] = {}
        texts: list[str | None] = []
        for row, payload in enumerate(payloads.to_pylist()):
            try:
                texts.append(None if payload is None else payload.decode())
            except UnicodeDecodeError as error:
                bad[row] = f"it is not a UTF-8 text: {error}"
                texts.append(None)
        return Decoded(pa.array(texts, pa.string()), bad)


class BareDecoder:
    """Decodes payloads that have no schema id, but one schema."""

    def __init__(self, decoder: ValueDecoder) -> None:
        self._decoder = decoder

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        return self._decoder.decode(payloads, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedReader:
    """How payloads with schema ids are read: into the column type of one schema, that of the reader."""

    part: PartOptions
    access: RegistryAccess
    schema: SchemaText
    subject: str
    """The subject of the reader's schema, in whose context ids are looked up."""


class FramedDecoder:
    """Decodes payloads that begin with a schema id, each by its own schema."""

    def __init__(self, reader: FramedReader, registry: Registry, kind: pa.DataType) -> None:
        self._reader = reader
        self._registry = registry
        self._kind = kind
        self._unusable: OrderedDict[int, str] = OrderedDict()
        """Why payloads with a schema id cannot be decoded, by id."""

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decodes payloads; raises RegistryUnavailable."""
        found = find_schema_ids(payloads)
        bad = dict(found.bad)
        groups = []
        for schema_id, rows in found.rows.items():
            decoder = self._decoder(schema_id)
            if isinstance(decoder, str):
                bad |= dict.fromkeys(rows.tolist(), decoder)
            else:
                groups.append((decoder, rows))
        if len(groups) == 1 and len(groups[0][1]) + payloads.null_count == len(payloads):
            return _merged(groups[0][0].decode(payloads, HEADER_BYTES), bad)
        return _merged(self._decode_groups(payloads, groups, bad), bad)

    def _decode_groups(
        self, payloads: pa.BinaryArray, groups: list[tuple[ValueDecoder, npt.NDArray[np.int64]]], bad: dict[int, str]
    ) -> Decoded:
        """Decodes groups of rows, and puts the results in the order of the rows; rows of no group are null."""
        parts = [pa.nulls(1, self._kind)]
        at = np.zeros(len(payloads), np.int64)
        end = 1
        for decoder, rows in groups:
            decoded = decoder.decode(payloads.take(pa.array(rows)), HEADER_BYTES)
            bad |= {int(rows[row]): reason for row, reason in decoded.bad.items()}
            parts.append(decoded.values)
            at[rows] = np.arange(end, end + len(rows))
            end += len(rows)
        return Decoded(pa.concat_arrays(parts).take(pa.array(at)), bad)

    def _decoder(self, schema_id: int) -> ValueDecoder | str:
        """Returns the decoder for payloads with a schema id; the reason as text if they cannot be decoded."""
        key = (self._reader, schema_id)
        known = _decoders.get(key)
        if known is not None:
            _decoders.move_to_end(key)
            return known
        reason = self._unusable.get(schema_id)
        if reason is None:
            writer = self._registry.by_id(schema_id, self._reader.subject, self._reader.part)
            if not isinstance(writer, str):
                try:
                    decoder = self._reader.schema.decoder(writer)
                except PenstockError as error:
                    reason = f"data of schema {schema_id} cannot be read with the schema of the query: {error}"
                else:
                    _remember(_decoders, key, decoder, DECODERS_MAX)
                    return decoder
            else:
                reason = writer
            _remember(self._unusable, schema_id, reason, UNKNOWN_MAX)
        return reason


_decoders: OrderedDict[tuple[FramedReader, int], ValueDecoder] = OrderedDict()
"""Decoders of this process by reader and schema id. Spark runs one task at a time in it."""


def _remember(known: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    known[key] = value
    if len(known) > most:
        known.popitem(last=False)


def _merged(decoded: Decoded, bad: dict[int, str]) -> Decoded:
    return Decoded(decoded.values, {**bad, **decoded.bad})
