"""Topics with contents, and the data source read with and without Spark."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka.admin import NewPartitions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming import DataStreamReader
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructType, TimestampType

from penstock.spark import PenstockDataSource
from penstock.spark.reader import BatchReader
from penstock.spark.stream_reader import StreamReader
from tests.clients.driver_confluent import ConfluentDriver
from tests.clients.drivers import NOW_MS, Outgoing
from tests.clients.waiting import PATIENCE_S

HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
SCHEMA = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
)
"""That of Spark's Kafka source, written down once more."""
WITH_HEADERS = StructType(list(SCHEMA.fields)).add("headers", HEADERS)


def numbered(count: int, start: int = 0, partition: int = 0) -> list[Outgoing]:
    """Messages that say which they are."""
    return [
        Outgoing(key=b"%d" % n, value=b"value %d" % n, timestamp_ms=NOW_MS + n, partition=partition)
        for n in range(start, start + count)
    ]


class Lab:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.client = ConfluentDriver(bootstrap)
        self._streams: list[StreamReader] = []

    def create(self, topic: str, partitions: int = 1, **configs: str) -> str:
        """Configs by their names with `_` for `.`."""
        self.client.create_topic(
            topic, partitions, {name.replace("_", "."): value for name, value in configs.items()}
        )
        return topic

    def fill(self, topic: str, messages: Sequence[Outgoing] | int, *, compression: str = "none") -> None:
        wanted = numbered(messages) if isinstance(messages, int) else messages
        self.client.produce(topic, wanted, compression=compression)

    def grow(self, topic: str, partitions: int) -> None:
        self.client.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)

    def options(self, topic: str | None = None, **more: Any) -> dict[str, str]:
        """Options by name; `__` stands for a dot: `kafka__group__id`."""
        named = {name.replace("__", "."): str(value) for name, value in more.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **({"subscribe": topic} if topic else {}), **named}

    # -- without Spark

    def source(self, options: Mapping[str, str]) -> PenstockDataSource:
        return PenstockDataSource(CaseInsensitiveDict(options))

    def reader(self, topic: str | None = None, **more: Any) -> BatchReader:
        options = self.options(topic, **more)
        schema = WITH_HEADERS if options.get("includeHeaders") == "true" else SCHEMA
        reader = self.source(options).reader(schema)
        assert isinstance(reader, BatchReader)
        return reader

    def stream(self, topic: str | None = None, **more: Any) -> StreamReader:
        reader = self.source(self.options(topic, **more)).streamReader(SCHEMA)
        assert isinstance(reader, StreamReader)
        self._streams.append(reader)
        return reader

    def stop_streams(self) -> None:
        """As Spark does when a query ends."""
        for stream in self._streams:
            stream.stop()

    def rows(self, topic: str | None = None, **more: Any) -> list[dict[str, Any]]:
        """What a batch query reads, as tasks give it to Spark."""
        return rows_of(self.reader(topic, **more))

    def values(self, topic: str | None = None, **more: Any) -> list[bytes | None]:
        return [row["value"] for row in self.rows(topic, **more)]

    # -- with Spark

    def load(self, spark: SparkSession, topic: str | None = None, **more: Any) -> DataFrame:
        return spark.read.format("penstock").options(**self.options(topic, **more)).load()

    def load_stream(self, spark: SparkSession, topic: str | None = None, **more: Any) -> DataFrame:
        return self.stream_reader(spark).options(**self.options(topic, **more)).load()

    @staticmethod
    def stream_reader(spark: SparkSession) -> DataStreamReader:
        return spark.readStream.format("penstock")


def rows_of(reader: BatchReader | StreamReader, partitions: Sequence[InputPartition] | None = None) -> list[dict]:
    """All rows of these tasks, or of all that a batch reader plans."""
    wanted = reader.partitions() if partitions is None else partitions  # type: ignore[call-arg]
    batches = [batch for partition in wanted for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []
