"""Encodes the typed keys and values of Arrow batches, before their rows become records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.schemas.columns.codec import CannotEncode, ValueEncoder
from penstock.spark.errors import hide_tracebacks
from penstock.spark.values.column_types import nullable
from penstock.spark.values.options import ValueFormat
from penstock.spark.values.writing import PartWriter, plan_writers
from penstock.spark.write_options import WriteOptions
from penstock.spark.write_schema import WriteColumns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RowDoesNotFit(PenstockError):
    """A row has a value that its schema does not allow."""

    code = ErrorCode.INVALID_RECORD


class RowEncoder:
    """Encodes the keys and values of rows. Sent to tasks with its plan, so that only the driver asks the registry.

    The plan is made when it is first needed: Spark creates a streaming sink for every commit, too, which needs none.
    """

    def __init__(self, options: WriteOptions, columns: WriteColumns, schema: StructType) -> None:
        self._arguments = (options, columns, schema)
        self._planned: tuple[PartWriter, ...] | None = None

    def plan(self) -> tuple[PartWriter, ...]:
        """Finds the schemas, and registers them. Raises BadOption, BadSchema or RegistryUnavailable."""
        if self._planned is None:
            self._planned = plan_writers(*self._arguments)
        return self._planned

    def __getstate__(self) -> dict[str, Any]:
        with hide_tracebacks():
            self.plan()
        return self.__dict__

    def encode(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows with binary keys and values. Raises RowDoesNotFit."""
        writers = self.plan()
        encoders = [_encoder(writer) for writer in writers]
        for batch in rows:
            encoded = batch
            for writer, encoder in zip(writers, encoders, strict=True):
                encoded = _with_column(encoded, writer.part, _encoded(batch, writer, encoder))
            yield encoded


def _encoder(writer: PartWriter) -> ValueEncoder | None:
    """Returns the encoder of a part; None for texts, which need none."""
    if writer.format is ValueFormat.TEXT:
        return None
    if writer.schema is not None:
        return writer.schema.encoder()
    from penstock.schemas.columns.json.encoder import JsonEncoder

    return JsonEncoder(writer.type)


def _encoded(batch: pa.RecordBatch, writer: PartWriter, encoder: ValueEncoder | None) -> pa.Array:
    if writer.fields is None:
        column = batch.column(writer.part)
    else:
        fields: Sequence[pa.Field] = [batch.schema.field(name) for name in writer.fields]
        column = pa.StructArray.from_arrays([batch.column(name) for name in writer.fields], fields=fields)
    # Nulls in required fields pass here: the encoder names their row and field.
    column = column.cast(nullable(writer.type))
    if encoder is None:
        return column
    try:
        return encoder.encode(column, writer.header)
    except CannotEncode as error:
        raise RowDoesNotFit(f"the {writer.part} of a row does not fit its schema: {error}") from error


def _with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """Returns a batch in which a column is replaced, or added."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns[name] = column
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
