"""The interface of schema formats: what the registry and Spark need of Avro, JSON Schema and Protobuf."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, Self

from penstock.foundation.errors import PenstockError


class InvalidSchema(PenstockError):
    """A schema that cannot be parsed, or that its format does not allow. The message is shown to the client."""


class NoColumnType(PenstockError):
    """A schema, or a part of one, that no column type fits. The message names the part and the reason."""


READER: Final = "\ue000reader\ue000"
WRITER: Final = "\ue000writer\ue000"
"""Marks in the message of a Difference. They stand for the words `new` and `old`: whether the new schema reads or is
read depends on the compatibility level."""


class Difference(NamedTuple):
    """One reason why data written with one schema cannot be read with another."""

    kind: str
    """Kind in capitals, as in Confluent's registry: `READER_FIELD_MISSING_DEFAULT_VALUE`, `PROPERTY_REMOVED_…`."""
    message: str
    """The text that the registry shows for it, with the marks READER and WRITER."""

    def describe(self, reader: str, writer: str) -> str:
        """Returns the text: READER and WRITER are replaced by `new` and `old`, or the other way round."""
        return self.message.replace(READER, reader).replace(WRITER, writer)


class ParsedSchema(Protocol):
    """A schema of one format. Immutable."""

    @property
    def text(self) -> str:
        """The canonical text, which the registry stores and returns. Equal texts are the same schema."""

    def normalized(self) -> Self:
        """Returns the schema in its normal form: texts that differ only in order or layout become equal."""

    def formatted(self, name: str) -> str:
        """Returns the text in one of the layouts of its format, such as `resolved` for Avro, `serialized` for
        Protobuf; `text` for a layout that the format does not have, as in Confluent's registry."""

    def validate(self, *, fields: bool) -> None:
        """Raises InvalidSchema if a new schema must not be registered. `fields`: also checks field names that
        start with `$$` or are reserved (`validateFields` of Confluent's registry)."""

    def is_same(self, other: Self) -> bool:
        """Whether both are the same schema once all references are resolved, though their texts may differ."""

    def differences(self, writer: Self) -> Sequence[Difference]:
        """Returns why data written with schema `writer` cannot be read with this schema; empty if it can."""


class SchemaFormat(Protocol):
    """Parses the schemas of one format. Pure: opens no files and sends no requests."""

    def parse(self, text: str, references: Mapping[str, str]) -> ParsedSchema:
        """Parses a schema. `references`: the text of each schema it refers to, directly or through others, by the
        name of the reference; a schema comes after those it needs. Raises InvalidSchema."""
