"""The `penstock` data source: creates readers and writers for Spark."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.spark import table
from penstock.spark.errors import hide_tracebacks
from penstock.spark.read_limits import SINCE_4_2
from penstock.spark.read_options import ReadOptions
from penstock.spark.read_schema import source_schema


class PenstockDataSource(DataSource):
    """The data source of `format("penstock")` for read, readStream, write and writeStream: see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        with hide_tracebacks():
            if table.is_new_table(self.options):
                return table.table_schema(self.options)
            options = ReadOptions.parse(self.options)
            return source_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.reader import BatchReader, FilteringReader

        with hide_tracebacks():
            options = ReadOptions.parse(table.read_options(self.options, schema))
            options.check_batch()
            kind = FilteringReader if options.push_filters else BatchReader
            return kind(options, _columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from penstock.spark.stream_reader import StreamReader, UnlimitedStreamReader

        with hide_tracebacks():
            options = ReadOptions.parse(table.read_options(self.options, schema))
            options.check_stream()
            kind = StreamReader if SINCE_4_2 else UnlimitedStreamReader
            return kind(options, _columns(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.writer import batch_writer

        with hide_tracebacks():
            return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from penstock.spark.writer import stream_writer

        with hide_tracebacks():
            return stream_writer(self.options, schema, overwrite)


def _columns(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    from pyspark.sql.pandas.types import to_arrow_schema

    from penstock.spark.rows import check_columns

    arrow = to_arrow_schema(schema, timezone="UTC") if SINCE_4_2 else to_arrow_schema(schema)
    columns = tuple(schema.fieldNames())
    check_columns(columns, tuple(arrow.types), include_headers=options.include_headers)
    return columns
