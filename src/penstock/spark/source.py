"""The data source `penstock`: what Spark asks of it, and who answers."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.spark.errors import plainly
from penstock.spark.read_options import ReadOptions


class PenstockDataSource(DataSource):
    """`spark.read.format("penstock")`, and readStream, write, writeStream: see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        from penstock.spark.rows import HEADERS_SCHEMA, SCHEMA

        with plainly():
            options = ReadOptions.parse(self.options)
        return f"{SCHEMA}, {HEADERS_SCHEMA}" if options.include_headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.reader import BatchReader, FilteringReader

        with plainly():
            options = ReadOptions.parse(self.options)
            options.check_batch()
            kind = FilteringReader if options.push_filters else BatchReader
            return kind(options, _columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from penstock.spark.stream_reader import StreamReader

        with plainly():
            options = ReadOptions.parse(self.options)
            options.check_stream()
            return StreamReader(options, _columns(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.writer import batch_writer

        with plainly():
            return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from penstock.spark.writer import stream_writer

        with plainly():
            return stream_writer(self.options, schema, overwrite)


def _columns(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """The columns to read: all, or those of a schema that the person gave."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from penstock.spark.rows import check_columns

    arrow = to_arrow_schema(schema, timezone="UTC")
    columns = tuple(schema.fieldNames())
    check_columns(columns, tuple(arrow.types), include_headers=options.include_headers)
    return columns
