"""Tables of Parquet files that batches are added to exactly once: what both kinds of them share.

Spark writes a batch into a staging folder of its own; the table's commit makes all of its files count at once,
together with marks: names with numbers that say how far the table has come. A batch whose marks are there already is
not written again, whatever became of the process, the checkpoint or the query that wrote it first.
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

OURS: Final = "_penstock"
"""The folder of a table that holds what is not data; readers leave out what begins with an underscore."""
NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
FORMATS: Final = ("delta", "parquet")
SMALL_SHARE: Final = 2
"""A file smaller than the target size by this factor is worth compacting."""


class LakeMismatch(PenstockError):
    """What is to be written does not fit the table that is there."""


class LakeMissing(PenstockError):
    """There is no table, or nothing to read it with."""


class DataFile(NamedTuple):
    """A Parquet file of a batch, staged."""

    staged: Path
    name: str
    """Where it goes, from the table's folder on."""
    partition: Mapping[str, str | None]
    rows: int
    size_bytes: int


class Added(NamedTuple):
    """What a commit brought in."""

    files: int
    rows: int
    size_bytes: int


class Lake(ABC):
    """A table in a folder that the driver and all executors see."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

    @abstractmethod
    def prepare(self, schema: "StructType", partition_by: Sequence[str]) -> None:
        """Make the table, or see that the schema fits it: new columns are added, LakeMismatch for other changes."""

    @abstractmethod
    def marks(self, names: Sequence[str]) -> dict[str, int]:
        """Those of the marks that are there."""

    @abstractmethod
    def commit(self, files: Sequence[DataFile], marks: Mapping[str, int], before: Mapping[str, int]) -> None:
        """Make the files count, and set the marks, all at once.

        `before`: these marks as the writer knew them. LakeMismatch if another writer has moved them meanwhile.
        """

    @abstractmethod
    def compact(self, target_bytes: int) -> int:
        """Put small files together; how many have gone."""

    @abstractmethod
    def read(self, spark: "SparkSession") -> "DataFrame":
        """The table as it is now."""

    def write(self, batch: "DataFrame", partition_by: Sequence[str]) -> list[DataFile]:
        """Have Spark write a batch to the side; `commit` makes it count."""
        # Others read these files, and put them together: times as Parquet has them, not as Impala once had.
        batch.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        staging = self.folder / OURS / "staging" / uuid.uuid4().hex
        writer = batch.write.option("compression", "zstd")
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        writer.parquet(str(staging))
        return list(_staged(staging))

    def clean(self) -> None:
        """Throw away what batches that never counted have left."""
        shutil.rmtree(self.folder / OURS / "staging", ignore_errors=True)


def _staged(staging: Path) -> Iterator[DataFile]:
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
    """
    >>> partition_values(["topic=orders", "date=2026-01-31"])
    {'topic': 'orders', 'date': '2026-01-31'}
    """
    found: dict[str, str | None] = {}
    for part in parts:
        name, _, value = part.partition("=")
        found[unquote(name)] = None if value == NULL_FOLDER else unquote(value)
    return found


def added(files: Sequence[DataFile]) -> Added:
    return Added(len(files), sum(file.rows for file in files), sum(file.size_bytes for file in files))


def ends_of(file: DataFile) -> dict[int, int]:
    """The offset after the last one of each Kafka partition that a file holds rows of.

    Most often the footer knows: a task reads one partition. Else the two columns are read.
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


def merged(there: Mapping[str, Any], new: Mapping[str, Any], where: Path) -> list[dict[str, Any]]:
    """The columns (Spark's JSON) that a table lacks. LakeMismatch where one has another type now."""
    known = {column["name"]: column for column in there["fields"]}
    lacking = []
    for column in new["fields"]:
        before = known.get(column["name"])
        if before is None:
            lacking.append({**column, "nullable": True})
        elif _loose(before["type"]) != _loose(column["type"]):
            raise LakeMismatch(
                f"column {column['name']!r} is {_short(before['type'])} in {where}, and {_short(column['type'])} "
                "now; give a schema that fits, or write to another path"
            )
    return lacking


def _loose(kind: Any) -> Any:
    """A type without what may differ: whether it may be null, and notes."""
    if isinstance(kind, dict):
        return {key: _loose(value) for key, value in kind.items() if key not in _LOOSE}
    return [_loose(item) for item in kind] if isinstance(kind, list) else kind


_LOOSE: Final = frozenset({"nullable", "containsNull", "valueContainsNull", "metadata"})


def _short(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(_loose(kind))


def open_lake(folder: Path, kind: str) -> Lake:
    """A table of a kind (`FORMATS`); it need not be there yet."""
    if kind == "delta":
        from penstock.spark.pipelines.lake_delta import DeltaLake

        return DeltaLake(folder)
    from penstock.spark.pipelines.lake_parquet import ParquetLake

    return ParquetLake(folder)


def find_lake(folder: Path) -> Lake:
    """The table that is in a folder, whichever kind it is."""
    if (folder / "_delta_log").is_dir():
        return open_lake(folder, "delta")
    if (folder / OURS / "state.json").is_file():
        return open_lake(folder, "parquet")
    raise LakeMissing(f"there is no table in {folder}: it has neither _delta_log nor {OURS}/state.json")


def check_marks(there: Mapping[str, int], before: Mapping[str, int], moved: Mapping[str, int], folder: Path) -> None:
    """LakeMismatch unless the marks that are about to be moved are where the writer believes them to be."""
    if any(there.get(name) != before.get(name) for name in moved):
        raise LakeMismatch(f"something else writes to {folder}; stop one of the two")


def replace_synced(path: Path, text: str) -> None:
    """Write a file anew, all or nothing, on the disk before it counts."""
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
