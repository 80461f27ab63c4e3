"""Exactly-once tables of Parquet files (lakes): common parts of the Parquet and Delta formats.

Spark writes a batch into a staging folder; a commit of the table makes all its files visible at once, together with
marks: named numbers that record progress. A batch whose marks are committed is not written again, even by a new
process, or by a query with a new checkpoint.
"""

import json
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from penstock.foundation.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PRIVATE_FOLDER: Final = "_penstock"
"""Name of the metadata folder of a table; readers ignore names that begin with an underscore."""
NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
FORMATS: Final = ("delta", "parquet")
SMALL_SHARE: Final = 2
"""Divisor: a file smaller than the target size divided by this number is merged with other small files."""


class LakeMismatch(PenstockError):
    """The data does not fit the existing table, or another writer is writing to the table."""


class LakeMissing(PenstockError):
    """The lake table does not exist, or the library that reads its format is not installed."""


class DataFile(NamedTuple):
    """A Parquet file that a batch has written to the staging folder."""

    staged: Path
    name: str
    """Path that the file has after the commit, relative to the table's folder."""
    partition: Mapping[str, str | None]
    rows: int
    size_bytes: int


class Added(NamedTuple):
    """The numbers of files, rows and bytes that a commit adds to a table."""

    files: int
    rows: int
    size_bytes: int


class Lake(ABC):
    """A table of Parquet files in a folder that the driver and all executors can access."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

    @abstractmethod
    def prepare(self, schema: "StructType", partition_by: Sequence[str]) -> None:
        """Creates the table, or adds new columns to it. Raises LakeMismatch if the schema differs otherwise."""

    @abstractmethod
    def marks(self, names: Sequence[str]) -> dict[str, int]:
        """Returns marks (named numbers that record progress) by name. Omits marks that do not exist."""

    @abstractmethod
    def commit(self, files: Sequence[DataFile], marks: Mapping[str, int], before: Mapping[str, int]) -> None:
        """Adds the files to the table and sets marks (named numbers that record progress) to new values, atomically.

        `before`: the marks as the writer read them. Raises LakeMismatch if another writer has changed one of `marks`.
        """

    @abstractmethod
    def compact(self, target_bytes: int) -> int:
        """Merges small files into files of about `target_bytes`. Returns how many fewer files there are."""

    @abstractmethod
    def read(self, spark: "SparkSession") -> "DataFrame":
        """Returns the current content of the table."""

    def write(self, batch: "DataFrame", partition_by: Sequence[str]) -> list[DataFile]:
        """Writes a batch to the staging folder and returns the files. Readers see them only after `commit`."""
        # Standard Parquet timestamps, not INT96: other readers and `compact` use these files too.
        batch.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        staging = self.staging / uuid.uuid4().hex
        writer = batch.write.option("compression", "zstd")
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        writer.parquet(str(staging))
        return list(_find_staged(staging))

    def clean(self) -> None:
        """Deletes staged files of batches that were never committed."""
        shutil.rmtree(self.staging, ignore_errors=True)

    @property
    def staging(self) -> Path:
        """The folder for files that are not committed yet."""
        return self.folder / PRIVATE_FOLDER / "staging"


def _find_staged(staging: Path) -> Iterator[DataFile]:
    import pyarrow.parquet as pq

    for number, path in enumerate(sorted(staging.rglob("*.parquet"))):
        folder = path.parent.relative_to(staging)
        metadata = pq.read_metadata(path)
        if metadata.num_rows:
            yield DataFile(
                staged=path,
                name=str(folder / f"{staging.name}-{number:05}.parquet"),
                partition=partition_values(folder.parts),
                rows=metadata.num_rows,
                size_bytes=path.stat().st_size,
            )


def partition_values(parts: Sequence[str]) -> dict[str, str | None]:
    """Parses the names of partition folders into column values.

    >>> partition_values(["topic=orders", "date=2026-01-31"])
    {'topic': 'orders', 'date': '2026-01-31'}
    """
    found: dict[str, str | None] = {}
    for part in parts:
        name, _, value = part.partition("=")
        found[unquote(name)] = None if value == NULL_FOLDER else unquote(value)
    return found


def count_added(files: Sequence[DataFile]) -> Added:
    return Added(len(files), sum(file.rows for file in files), sum(file.size_bytes for file in files))


def end_offsets(file: DataFile) -> dict[int, int]:
    """Returns, for each Kafka partition with rows in a file, the offset after its last row.

    Reads only the Parquet footer if each row group has rows of one partition; otherwise reads two whole columns.
    """
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file.staged)
    index = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    found: dict[int, int] = {}
    for group in range(metadata.num_row_groups):
        partition = metadata.row_group(group).column(index["partition"]).statistics
        offset = metadata.row_group(group).column(index["offset"]).statistics
        if partition is None or offset is None or not offset.has_min_max or partition.min != partition.max:
            return _ends_by_rows(file.staged)
        found[partition.min] = max(found.get(partition.min, 0), offset.max + 1)
    return found


def _ends_by_rows(path: Path) -> dict[int, int]:
    import pyarrow.parquet as pq

    table = pq.ParquetFile(path).read(columns=["partition", "offset"])
    ends = table.group_by("partition").aggregate([("offset", "max")])
    return {
        partition: last + 1
        for partition, last in zip(ends["partition"].to_pylist(), ends["offset_max"].to_pylist(), strict=True)
    }


def missing_columns(there: Mapping[str, Any], new: Mapping[str, Any], where: Path) -> list[dict[str, Any]]:
    """Returns the columns of schema `new` that schema `there` lacks. Raises LakeMismatch if a type differs."""
    known = {column["name"]: column for column in there["fields"]}
    lacking = []
    for column in new["fields"]:
        before = known.get(column["name"])
        if before is None:
            lacking.append({**column, "nullable": True})
        elif _comparable(before["type"]) != _comparable(column["type"]):
            raise LakeMismatch(
                f"column {column['name']!r} is {_short(before['type'])} in {where}, but {_short(column['type'])} "
                "now; set a schema that fits, or write to another path"
            )
    return lacking


def _comparable(kind: Any) -> Any:
    """Returns a data type, in the form of Spark's JSON schema, without nullability and metadata."""
    if isinstance(kind, dict):
        return {key: _comparable(value) for key, value in kind.items() if key not in _IGNORED_KEYS}
    return [_comparable(item) for item in kind] if isinstance(kind, list) else kind


_IGNORED_KEYS: Final = frozenset({"nullable", "containsNull", "valueContainsNull", "metadata"})


def _short(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(_comparable(kind))


def check_marks(there: Mapping[str, int], before: Mapping[str, int], moved: Mapping[str, int], folder: Path) -> None:
    """Raises LakeMismatch if another writer has changed one of the progress marks `moved`, which this writer wants
    to set. `there`: the current marks of the lake in `folder`; `before`: the marks when this writer read them."""
    if any(there.get(name) != before.get(name) for name in moved):
        raise LakeMismatch(f"another writer is writing to {folder}; stop one of the two")


def replace_synced(path: Path, text: str) -> None:
    """Replaces the content of a file by `text`, atomically and durably (fsync)."""
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
