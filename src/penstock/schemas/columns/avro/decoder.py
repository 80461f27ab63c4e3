"""Decodes Avro payloads into Arrow columns."""

from __future__ import annotations

import pyarrow as pa

from penstock.records.arrow import binary_column
from penstock.schemas.columns import kernel
from penstock.schemas.columns.avro.operations import TEXTS, Reason
from penstock.schemas.columns.avro.program import Program
from penstock.schemas.columns.avro.resolution import compile_decoder
from penstock.schemas.columns.codec import Decoded
from penstock.schemas.columns.layout import BadRow
from penstock.schemas.formats.avro import AvroSchema


def avro_decoder(writer: AvroSchema, reader: AvroSchema) -> AvroDecoder:
    """Returns a decoder of payloads of the schema `writer`, into the column type of the schema `reader`.

    Raises IncompatibleTypes if they cannot be resolved, NoColumnType if there is no column type for `reader`.
    """
    return AvroDecoder(compile_decoder(writer, reader))


class AvroDecoder:
    """Decodes payloads of one writer schema. See `codec.ValueDecoder`."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.type: pa.DataType = program.layout.root.type

    def decode(self, payloads: pa.BinaryArray, header_bytes: int) -> Decoded:
        """Decodes each payload after its first `header_bytes` bytes."""
        rows = binary_column(payloads)
        filled, bad = kernel.active.decode_avro(self._program, rows, len(payloads), header_bytes)
        values = self._program.layout.to_arrow(filled)
        return Decoded(values, {row: self._reason(problem) for row, problem in bad.items()})

    def _reason(self, problem: BadRow) -> str:
        program = self._program
        if problem.reason == Reason.UNREADABLE:
            message = program.constants[program.steps[4 * problem.step + 2]]
            assert message is not None
            return f"byte {problem.position}: {message.decode()}"
        path = program.paths[problem.step]
        text = TEXTS[Reason(problem.reason)]
        return f"{path}, byte {problem.position}: {text}" if path else f"byte {problem.position}: {text}"
