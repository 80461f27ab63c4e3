"""Decodes and encodes payloads of Protobuf messages, as Confluent's serializers write them: after message indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.records.arrow import binary_column
from penstock.schemas.columns import kernel
from penstock.schemas.columns.codec import Decoded, IncompatibleTypes
from penstock.schemas.columns.layout import Layout
from penstock.schemas.columns.protobuf.compatibility import check_same_fields
from penstock.schemas.columns.protobuf.descriptors import message_descriptor
from penstock.schemas.columns.protobuf.encode_pure import encode
from penstock.schemas.columns.protobuf.encoding_plan import encoding_plan
from penstock.schemas.columns.protobuf.plan import MessagePlan, message_plan
from penstock.schemas.columns.protobuf.problems import Problem, describe
from penstock.schemas.columns.protobuf.program import Program
from penstock.schemas.formats.protobuf.message_indexes import messages_by_name, write_message_indexes

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.schemas.formats.protobuf.schema import ProtobufSchema


class ProtobufDecoder:
    """Decodes payloads that contain one message."""

    def __init__(self, plan: MessagePlan, indexes: tuple[int, ...]) -> None:
        self.type: Final = plan.type
        self._layout = Layout(plan.type)
        self._program = Program(plan, self._layout, indexes)

    def decode(self, payloads: pa.BinaryArray, header_bytes: int) -> Decoded:
        filled, bad = kernel.active.decode_protobuf(
            self._program, binary_column(payloads), len(payloads), header_bytes
        )
        paths = self._program.paths
        reasons = {row: describe(problem, paths[field] if field >= 0 else "", at) for row, problem, at, field in bad}
        return Decoded(self._layout.to_arrow(filled), reasons)


class ProtobufEncoder:
    """Encodes the elements of a column of structs as messages. Fields are found by name; those that the column lacks
    are not set. Integers may be wider than the field's, in both directions."""

    def __init__(self, plan: MessagePlan, indexes: bytes) -> None:
        self._plan = plan
        self._indexes = indexes

    def encode(self, values: pa.Array, header: bytes) -> pa.BinaryArray:
        plan = encoding_plan(self._plan, values.type)
        return encode(plan, values.cast(plan.type), header + self._indexes)


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
