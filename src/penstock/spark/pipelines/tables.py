"""Sources of the `sql` pipeline: topics and files as tables, with given or inferred JSON schemas."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.brokers import Brokers
from penstock.spark.pipelines.clusters import held_ranges, list_topics, matching_topics
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.json_values import from_json
from penstock.spark.pipelines.lake_formats import find_lake
from penstock.spark.pipelines.options import (
    Locations,
    bootstrap,
    choice,
    columns_of,
    duration,
    locations,
    nested,
    number,
    option,
    pairs,
    registry_urls,
    schema,
    text,
    topics,
)
from penstock.spark.pipelines.pipeline import Need, Run
from penstock.spark.pipelines.typed_values import (
    FORMATS,
    bad_record_options,
    check_registry,
    flatten_values,
    registry_options,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

SAMPLE: Final = 1000
"""Number of messages at the end of each partition from which a schema is inferred."""
METADATA_COLUMNS: Final = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""Names of the columns that a table of JSON messages has besides those of its JSON fields."""
RAW_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


class NothingToInfer(PenstockError):
    """There are no messages, or no JSON objects, from which to infer a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    column: str = option(text, "The event time column", metavar="COLUMN")
    delay: float = option(duration, "How late a row may be before it is dropped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A topic or file that the SQL can name as a table."""

    topic: tuple[str, ...] | None = option(topics, "The topic, or topics, to read", default=None)
    pattern: str | None = option(
        text, "Topics whose names contain a match of a regular expression", default=None, metavar="REGEX"
    )
    path: str | None = option(text, "A folder of files to read instead of a topic", default=None, metavar="FOLDER")
    format: str = option(
        choice("lake", "parquet", "json", "csv", "orc"),
        "The format of the files; lake is the output of a pipeline, Delta or Parquet",
        default="lake",
    )
    bootstrap: Brokers | None = option(bootstrap, "Brokers, if other than the pipeline's", default=None)
    value: str = option(choice("json", "text", "binary", *FORMATS), "The format of message values", default="json")
    registry: str | None = option(
        registry_urls,
        "The schema registry, if other than the pipeline's; by default that of the brokers",
        default=None,
    )
    schema: str = option(schema, "The fields of JSON values, or the columns of files", default="infer")
    on_corrupt: str = option(
        choice("fail", "drop", "keep"),
        "What to do with a value that does not match the schema; keep stores it in the column _corrupt",
        default="fail",
    )
    watermark: Watermark | None = option(nested(Watermark), "The watermark for late rows", default=None)
    starting: str = option(
        text, "Where to start: earliest, latest, or offsets in Spark's JSON format", default="earliest"
    )
    ending: str = option(text, "Where to end in batch mode: latest, or offsets", default="latest")
    read: str = option(
        choice("stream", "batch"), "Whether to stream, or to read once: files are always read once", default="stream"
    )
    max_rows: int | None = option(number(1), "The most messages per micro-batch", default=None)
    group: str | None = option(text, "A consumer group to commit progress to", default=None)
    options: Mapping[str, str] = option(pairs, "More options of the data source, by their names", default={})
    locations: Locations = locations()

    @property
    def is_stream(self) -> bool:
        return self.path is None and self.read == "stream"

    def columns(self) -> list[str] | None:
        """Returns the names of the columns; None if they are not known before reading."""
        if self.path is not None:
            return None if self.schema == "infer" else columns_of(self.schema)
        if self.value in ("text", "binary"):
            return list(RAW_COLUMNS)
        if self.schema == "infer":
            return None  # only the messages, or the registry, know them
        return [*columns_of(self.schema), *METADATA_COLUMNS, *(["_corrupt"] if self.on_corrupt == "keep" else [])]


def check_source(name: str, source: Source) -> Iterator[Problem]:
    at = source.locations.table
    given = [key for key in ("topic", "pattern", "path") if getattr(source, key) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        yield Problem(at, f"source {name!r} needs exactly one of topic, pattern and path; it has {found}")
    if source.pattern is not None:
        try:
            re.compile(source.pattern)
        except re.error as error:
            yield Problem(source.locations.of("pattern"), f"{source.pattern!r} is not a regular expression: {error}")
    yield from check_registry(f"source {name!r}", source.value, source.registry, source.locations)
    if source.value in FORMATS and source.schema != "infer":
        message = f"source {name!r}: values in {source.value} have the schema of the registry; leave out schema"
        yield Problem(source.locations.of("schema"), message)
    columns = source.columns()
    if source.watermark is not None and columns is not None and source.watermark.column not in columns:
        there = ", ".join(columns)
        location = source.locations.of("watermark")
        yield Problem(
            location, f"watermark: there is no column {source.watermark.column!r} in {name!r}; there are {there}"
        )
    for key in ("starting", "ending"):
        value = getattr(source, key)
        if value not in ("earliest", "latest") and not _is_offsets(value):
            wanted = 'earliest, latest, or offsets as in {"orders": {"0": 17, "1": -2}}'
            yield Problem(source.locations.of(key), f"{key}: {value!r} is not {wanted}")


def _is_offsets(value: str) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False


def source_need(source: Source, default: Brokers) -> Need | None:
    """Returns topics that a source needs, and its brokers (`default` if it sets none); None if it reads files."""
    if source.path is not None:
        return None
    location = source.locations.of("topic")
    return Need(
        bootstrap=source.bootstrap or default,
        location=source.locations.of("bootstrap") if source.bootstrap else location,
        topics=dict.fromkeys(source.topic or (), location),
        pattern=source.pattern,
    )


def open_source(run: Run, source: Source, default: Brokers, *, as_stream: bool) -> "DataFrame":
    frame = _open_files(run, source) if source.path is not None else _open_topic(run, source, default, as_stream)
    if source.watermark is not None:
        delay = f"{round(source.watermark.delay * 1000)} milliseconds"
        frame = frame.withWatermark(source.watermark.column, delay)
    return frame


def _open_files(run: Run, source: Source) -> "DataFrame":
    folder = run.path(source.path or "")
    if source.format == "lake":
        return find_lake(folder).read(run.spark)
    reader = run.spark.read.options(**source.options)
    if source.schema != "infer":
        reader = reader.schema(source.schema)
    return reader.format(source.format).load(str(folder))


def topic_options(source: Source, default: Brokers) -> dict[str, str]:
    """Returns the data source options that read the topics of `source`. `default`: brokers if `source` sets none."""
    brokers = source.bootstrap or default
    found = {**brokers.options, "includeHeaders": "true"}
    if source.pattern is not None:
        found["subscribePattern"] = source.pattern
    else:
        found["subscribe"] = ",".join(source.topic or ())
    found["startingOffsets"] = source.starting
    if source.max_rows is not None:
        found["maxOffsetsPerTrigger"] = str(source.max_rows)
    if source.group is not None:
        found["kafka.group.id"] = source.group
    found |= registry_options(source.value, source.registry, brokers)
    found |= bad_record_options(source.value, source.on_corrupt)
    return found | dict(source.options)


def _open_topic(run: Run, source: Source, default: Brokers, as_stream: bool) -> "DataFrame":
    options = topic_options(source, default)
    if as_stream:
        raw = run.spark.readStream.format("penstock").options(**options).load()
    else:
        options.pop("maxOffsetsPerTrigger", None)
        raw = run.spark.read.format("penstock").options(**({"endingOffsets": source.ending} | options)).load()
    if source.value in FORMATS:
        return flatten_values(raw, source.on_corrupt, METADATA_COLUMNS)
    if source.value == "binary":
        return raw
    if source.value == "text":
        return raw.withColumns({"key": raw["key"].cast("string"), "value": raw["value"].cast("string")})
    fields = infer_schema(run, source, default) if source.schema == "infer" else parse_schema(source.schema)
    return _as_json(raw, fields, source.on_corrupt)


def parse_schema(ddl: str) -> "StructType":
    """Parses a schema in Spark's DDL syntax."""
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def _as_json(raw: "DataFrame", fields: "StructType", on_corrupt: str) -> "DataFrame":
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StringType, StructField, StructType

    marked = StructType([*fields.fields, StructField("_corrupt", StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    value = raw["value"].cast("string")
    found = raw.withColumn("_value", from_json(value, marked, options))
    corrupt: Column = fn.col("_value._corrupt")
    # A null value is a tombstone: it has no fields, and is not corrupt.
    if on_corrupt == "drop":
        found = found.where(corrupt.isNull())
    elif on_corrupt == "fail":
        message_location = fn.concat(
            fn.col("topic"), fn.lit("-"), fn.col("partition"), fn.lit(" offset "), fn.col("offset")
        )
        advice = " has a value that does not match the schema; set on_corrupt to drop or keep, or correct the schema"
        refuse = fn.raise_error(fn.concat(message_location, fn.lit(advice)))
        found = found.withColumn("_value", fn.when(corrupt.isNull(), fn.col("_value")).otherwise(refuse))
    kept = [fn.col("_value._corrupt").alias("_corrupt")] if on_corrupt == "keep" else []
    return found.select(
        *(fn.col(f"_value.`{field.name}`").alias(field.name) for field in fields.fields),
        fn.col("key").cast("string").alias("_key"),
        *(fn.col(name.removeprefix("_")).alias(name) for name in METADATA_COLUMNS[1:]),
        *kept,
    )


def infer_schema(run: Run, source: Source, default: Brokers) -> "StructType":
    """Infers JSON fields from the latest messages. `default`: brokers if `source` has none. Raises NothingToInfer."""
    from pyspark.sql.types import StructType

    from penstock.spark.pyspark_versions import SINCE_4_2

    run.on_step("inferring the schema from the latest messages")
    brokers = source.bootstrap or default
    names = list(source.topic or ())
    if source.pattern is not None:
        names = matching_topics(list_topics(brokers), source.pattern)
    begin: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    for name, span in held_ranges(brokers, names).items():
        begin.setdefault(name.topic, {})[str(name.partition)] = max(span.start, span.end - SAMPLE)
        end.setdefault(name.topic, {})[str(name.partition)] = span.end
    sample = (
        run.spark.read.format("penstock")
        .options(**{**brokers.options, "subscribe": ",".join(names)})
        .options(startingOffsets=json.dumps(begin), endingOffsets=json.dumps(end))
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
        .where("value IS NOT NULL")
        .limit(SAMPLE * 10)
    )
    values = [row["value"] for row in sample.collect()]
    if not values:
        topics_read = ", ".join(names)
        raise NothingToInfer(f"there is no message in {topics_read} to infer a schema from; set schema")
    rows = run.spark.createDataFrame([(value,) for value in values], "value string")
    # PySpark 4.1 reads JSON from an RDD only.
    inferred = run.spark.read.json(rows if SINCE_4_2 else rows.rdd.map(lambda row: str(row[0]))).schema
    fields = [field for field in inferred.fields if field.name != "_corrupt_record"]
    if not fields:
        raise NothingToInfer(f"the messages of {', '.join(names)} are not JSON objects; use value: text or binary")
    return StructType(fields)
