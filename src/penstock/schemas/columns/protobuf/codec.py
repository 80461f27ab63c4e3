"""Decodes and encodes payloads of Protobuf messages, as Confluent's serializers write them: after message indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.records.arrow import binary_column
from penstock.schemas.columns import kernel
from penstock.schemas.columns._protobuf_encode_pure import reason
from penstock.schemas.columns.codec import CannotEncode, Decoded, IncompatibleTypes
from penstock.schemas.columns.layout import NOT_THERE, BadRow, Layout
from penstock.schemas.columns.protobuf.compatibility import check_same_fields
from penstock.schemas.columns.protobuf.descriptors import message_descriptor
from penstock.schemas.columns.protobuf.encoding_plan import encoding_plan
from penstock.schemas.columns.protobuf.encoding_program import EncodingProgram
from penstock.schemas.columns.protobuf.plan import MessagePlan, message_plan
from penstock.schemas.columns.protobuf.problems import describe
from penstock.schemas.columns.protobuf.program import Program
from penstock.schemas.formats.protobuf.message_indexes import messages_by_name, write_message_indexes

if TYPE_CHECKING:
    from penstock.schemas.formats.protobuf.schema import ProtobufSchema


class ProtobufDecoder:
    """Decodes payloads that contain one message. See `codec.ValueDecoder`."""

    def __init__(self, plan: MessagePlan, indexes: tuple[int, ...]) -> None:
        self._program = Program(plan, Layout(plan.type), indexes)
        self.type: Final = plan.type

    def decode(self, payloads: pa.BinaryArray, header_bytes: int) -> Decoded:
        """Decodes each payload after its first `header_bytes` bytes, which message indexes follow."""
        rows = binary_column(payloads)
        filled, bad = kernel.active.decode_protobuf(self._program, rows, len(payloads), header_bytes)
        values = self._program.layout.to_arrow(filled)
        return Decoded(values, {row: self._reason(problem) for row, problem in bad.items()})

    def _reason(self, problem: BadRow) -> str:
        path = self._program.paths[problem.step] if problem.step != NOT_THERE else ""
        return describe(problem.reason, path, problem.position)


class ProtobufEncoder:
    """Encodes the elements of a column of structs as messages. See `codec.ValueEncoder`.

    Fields are found by name; those that the column does not have are not set.
    """

    def __init__(self, plan: MessagePlan, indexes: bytes) -> None:
        self._plan = plan
        self._indexes = indexes
        self._programs: dict[pa.DataType, EncodingProgram] = {}

    def encode(self, values: pa.Array, header: bytes) -> pa.BinaryArray:
        """Returns one payload per element: `header`, message indexes and the message.

        Raises IncompatibleTypes if the column's type does not fit the message, CannotEncode if a value does not.
        """
        program = self._programs.get(values.type)
        if program is None:
            program = self._programs[values.type] = EncodingProgram(encoding_plan(self._plan, values.type))
        values = values.cast(program.plan.type)
        encoded = kernel.active.encode_protobuf(program, values, header + self._indexes)
        if isinstance(encoded, int):
            raise CannotEncode(encoded, reason(program.plan, values.slice(encoded, 1)))
        buffers = [None if part is None else pa.py_buffer(part) for part in encoded[1:]]
        return pa.Array.from_buffers(pa.binary(), encoded.length, buffers)


def protobuf_type(schema: ProtobufSchema, message: str | None) -> pa.DataType:
    """Returns the column type of a message, by default of the schema's first one. Raises NoColumnType."""
    return message_plan(schema, message).type


def protobuf_decoder(writer: ProtobufSchema, reader: ProtobufSchema, message: str | None) -> ProtobufDecoder:
    """Returns a decoder of one message that was written with schema `writer`, with the columns of schema `reader`.

    Raises NoColumnType if the message has no column type, IncompatibleTypes if fields of the schemas do not agree.
    """
    plan = message_plan(reader, message)
    indexes = messages_by_name(writer).get(plan.name)
    if indexes is None:
        raise IncompatibleTypes(f"The schema that wrote the payloads does not define message {plan.name!r}")
    if writer is not reader:
        check_same_fields(message_descriptor(writer, plan.name), message_descriptor(reader, plan.name))
    return ProtobufDecoder(plan, indexes)


def protobuf_encoder(schema: ProtobufSchema, message: str | None) -> ProtobufEncoder:
    """Returns an encoder of a message, by default of the schema's first one. Raises NoColumnType."""
    plan = message_plan(schema, message)
    return ProtobufEncoder(plan, write_message_indexes(messages_by_name(schema)[plan.name]))
