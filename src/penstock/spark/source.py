"""The `penstock` data source: creates readers and writers for Spark."""

from typing import TYPE_CHECKING

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
from penstock.spark.pyspark_versions import SINCE_4_2
from penstock.spark.read_options import ReadOptions
from penstock.spark.read_schema import ReadColumns, parts_read, plan_readers, read_columns, source_schema
from penstock.spark.values.options import PARTS

if TYPE_CHECKING:
    from penstock.spark.values.reading import PartReader


class PenstockDataSource(DataSource):
    """The data source of `format("penstock")` for read, readStream, write and writeStream: see docs/spark.md.

    Spark calls `schema` once for each DataFrame, and pickles the object after that.
    """

    _readers: "tuple[PartReader, ...] | None" = None
    """How keys and values are decoded, fixed by `schema`; None if the user or a SQL table gives the schema."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        with hide_tracebacks():
            if table.is_new_table(self.options):
                return table.table_schema(self.options)
            options = ReadOptions.parse(self.options)
            self._readers = plan_readers(options, PARTS)
            return source_schema(options, self._readers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.reader import BatchReader, FilteringReader

        with hide_tracebacks():
            options = ReadOptions.parse(table.read_options(self.options, schema))
            options.check_batch()
            kind = FilteringReader if options.push_filters else BatchReader
            return kind(options, self._columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from penstock.spark.stream_reader import StreamReader, UnlimitedStreamReader

        with hide_tracebacks():
            options = ReadOptions.parse(table.read_options(self.options, schema))
            options.check_stream()
            kind = StreamReader if SINCE_4_2 else UnlimitedStreamReader
            return kind(options, self._columns(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.writer import batch_writer

        with hide_tracebacks():
            return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from penstock.spark.writer import stream_writer

        with hide_tracebacks():
            return stream_writer(self.options, schema, overwrite)

    def _columns(self, schema: StructType, options: ReadOptions) -> ReadColumns:
        readers = self._readers
        if readers is None:
            readers = plan_readers(options, parts_read(schema.fieldNames(), options))
        return read_columns(schema, options, readers)
