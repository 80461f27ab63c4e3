"""Schemas of keys and values as texts that can be sent to tasks, and the codecs that are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.client.schema_registry_models import AVRO, JSON_SCHEMA, PROTOBUF
from penstock.spark.values.options import ValueFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.schemas.columns.codec import ValueDecoder, ValueEncoder

TYPES: Final = {
    ValueFormat.AVRO: AVRO,
    ValueFormat.PROTOBUF: PROTOBUF,
    ValueFormat.JSON_SCHEMA: JSON_SCHEMA,
}
"""The registry's name of each format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaText:
    """A schema with all schemas that it refers to."""

    format: ValueFormat
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of each schema that it refers to, directly or through others; each after those it needs."""
    message: str | None = None
    """Full name of the Protobuf message; None: the first one of the schema."""

    def column_type(self) -> pa.DataType:
        """Returns the Arrow type of a column of such data. Raises InvalidSchema or NoColumnType."""
        match self.format:
            case ValueFormat.AVRO:
                from penstock.schemas.columns.avro.types import avro_type

                return avro_type(self._parse())
            case ValueFormat.PROTOBUF:
                from penstock.schemas.columns.protobuf.codec import protobuf_type

                return protobuf_type(self._parse(), self.message)
        from penstock.schemas.columns.json.schema_types import json_type

        return json_type(self._parse())

    def decoder(self, writer: SchemaText) -> ValueDecoder:
        """Returns a decoder of payloads of schema `writer` into the column type of this schema. Raises a
        PenstockError if the two do not fit."""
        match self.format:
            case ValueFormat.AVRO:
                from penstock.schemas.columns.avro.decoder import avro_decoder

                return avro_decoder(writer._parse(), self._parse())
            case ValueFormat.PROTOBUF:
                from penstock.schemas.columns.protobuf.codec import protobuf_decoder

                return protobuf_decoder(writer._parse(), self._parse(), self.message)
        from penstock.schemas.columns.json.decoder import JsonDecoder

        return JsonDecoder(self.column_type())  # JSON describes itself: the writer's schema is not needed

    def encoder(self) -> ValueEncoder:
        """Returns an encoder of columns of this schema's column type."""
        match self.format:
            case ValueFormat.AVRO:
                from penstock.schemas.columns.avro.encoder import avro_encoder

                return avro_encoder(self._parse())
            case ValueFormat.PROTOBUF:
                from penstock.schemas.columns.protobuf.codec import protobuf_encoder

                return protobuf_encoder(self._parse(), self.message)
        from penstock.schemas.columns.json.encoder import JsonEncoder

        return JsonEncoder(self.column_type())

    def record_name(self) -> str | None:
        """Returns the full name of an Avro record or a Protobuf message; None if the schema has none."""
        match self.format:
            case ValueFormat.AVRO:
                name: str | None = getattr(self._parse().root, "name", None)
                return name
            case ValueFormat.PROTOBUF:
                from penstock.schemas.formats.protobuf.message_indexes import FIRST_MESSAGE, message_name

                return message_name(self._parse(), FIRST_MESSAGE)
        return None

    def _parse(self) -> Any:
        references = dict(self.references)
        match self.format:
            case ValueFormat.AVRO:
                from penstock.schemas.formats import avro

                return avro.parse(self.text, references)
            case ValueFormat.PROTOBUF:
                from penstock.schemas.formats import protobuf

                return protobuf.parse(self.text, references)
        from penstock.schemas.formats import json_schema

        return json_schema.parse(self.text, references)


def derive_schema(format: ValueFormat, kind: pa.DataType, name: str) -> SchemaText:
    """Returns a schema for a column type. `name`: that of the record or message. Raises NoColumnType."""
    match format:
        case ValueFormat.AVRO:
            from penstock.schemas.columns.avro.spark_schema import avro_schema_of

            return SchemaText(format=format, text=avro_schema_of(kind, name))
        case ValueFormat.PROTOBUF:
            from penstock.schemas.columns.protobuf.derivation import protobuf_schema_of

            return SchemaText(format=format, text=protobuf_schema_of(kind, name))
    from penstock.schemas.columns.json.schema_types import json_schema_of

    return SchemaText(format=format, text=json_schema_of(kind, name))
