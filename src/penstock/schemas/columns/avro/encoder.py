"""Encodes Arrow columns as Avro payloads."""

from __future__ import annotations

import pyarrow as pa

from penstock.schemas.columns import kernel
from penstock.schemas.columns.avro.encoding import compile_encoder
from penstock.schemas.columns.avro.operations import TEXTS, Reason
from penstock.schemas.columns.avro.program import Program
from penstock.schemas.columns.codec import CannotEncode
from penstock.schemas.columns.layout import BadRow
from penstock.schemas.columns.sources import source_columns
from penstock.schemas.formats.avro import AvroSchema


def avro_encoder(schema: AvroSchema) -> AvroEncoder:
    """Returns an encoder of columns as payloads of a schema. Raises NoColumnType if no column type fits it."""
    return AvroEncoder(compile_encoder(schema))


class AvroEncoder:
    """Encodes the elements of columns as payloads of one schema. See `codec.ValueEncoder`."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def encode(self, values: pa.Array, header: bytes) -> pa.BinaryArray:
        """Returns one payload per element, each beginning with `header`; a null element becomes a null payload.

        Raises IncompatibleTypes if the schema has no place for the column's type, CannotEncode if a value does not
        fit.
        """
        columns = source_columns(values, self._program.layout)
        encoded = kernel.active.encode_avro(self._program, columns, len(values), header)
        if isinstance(encoded, BadRow):
            path = self._program.paths[encoded.step]
            text = TEXTS[Reason(encoded.reason)]
            raise CannotEncode(encoded.position, f"{path}: {text}" if path else text)
        buffers = [None if part is None else pa.py_buffer(part) for part in encoded[1:]]
        return pa.Array.from_buffers(pa.binary(), encoded.length, buffers)
