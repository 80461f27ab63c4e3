"""A lake in Delta format: each Spark batch is one commit, with progress marks (named numbers) as `txn` actions."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow.parquet as pq

from penstock.spark.pipelines.lake import DataFile, Lake, LakeMismatch, LakeMissing, check_marks, missing_columns

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class DeltaLake(Lake):
    """A lake in Delta format. Spark writes Parquet files; the library deltalake commits them to the Delta log."""

    def __init__(self, folder: Path) -> None:
        if find_spec("deltalake") is None:
            raise LakeMissing("Delta tables need deltalake: pip install 'penstock[spark]', or use format parquet")
        super().__init__(folder)

    def prepare(self, schema: "StructType", partition_by: Sequence[str]) -> None:
        from deltalake import DeltaTable, Schema

        wanted = json.loads(schema.json())
        for column in wanted["fields"]:
            column["nullable"] = True
        if not DeltaTable.is_deltatable(str(self.folder)):
            self.folder.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                str(self.folder), Schema.from_json(json.dumps(wanted)), mode="ignore", partition_by=list(partition_by)
            )
            return
        table = DeltaTable(str(self.folder))
        there = list(table.metadata().partition_columns)
        if there != list(partition_by):
            raise LakeMismatch(
                f"{self.folder} is partitioned by {', '.join(there) or 'nothing'}, not by "
                f"{', '.join(partition_by) or 'nothing'}; write to another path"
            )
        lacking = missing_columns(json.loads(table.schema().to_json()), wanted, self.folder)
        if lacking:
            more = Schema.from_json(json.dumps({"type": "struct", "fields": lacking}))
            table.alter.add_columns(more.fields)

    def marks(self, names: Sequence[str]) -> dict[str, int]:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.folder)):
            return {}
        return _marks(DeltaTable(str(self.folder)), names)

    def commit(self, files: Sequence[DataFile], marks: Mapping[str, int], before: Mapping[str, int]) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.transaction import AddAction

        # Checked on the version that the commit builds on; Delta detects conflicts with later versions.
        table = DeltaTable(str(self.folder))
        check_marks(_marks(table, list(marks)), before, marks, self.folder)
        actions = []
        for file in files:
            # Moved before the commit: readers ignore files that are not in the log.
            target = self.folder / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file.staged, target)
            actions.append(
                AddAction(
                    path=quote(file.name, safe="/=-_.~"),
                    size=file.size_bytes,
                    partition_values=file.partition,
                    modification_time=int(time.time() * 1000),
                    data_change=True,
                    stats=json.dumps(_stats(target)),
                )
            )
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            list(table.metadata().partition_columns),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(name, version) for name, version in marks.items()]
            ),
        )

    def compact(self, target_bytes: int) -> int:
        from deltalake import DeltaTable

        table = DeltaTable(str(self.folder))
        metrics: dict[str, Any] = table.optimize.compact(target_size=target_bytes)
        table.vacuum(dry_run=False)  # deletes files removed from the table a week ago
        return int(metrics["numFilesRemoved"]) - int(metrics["numFilesAdded"])

    def read(self, spark: "SparkSession") -> "DataFrame":
        from deltalake import DeltaTable
        from pyspark.sql.types import StructType

        table = DeltaTable(str(self.folder))
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
        files = table.file_uris()
        if not files:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).option("basePath", str(self.folder)).parquet(*files)


def _marks(table: "DeltaTable", names: Sequence[str]) -> dict[str, int]:
    found = {name: table.transaction_version(name) for name in names}
    return {name: version for name, version in found.items() if version is not None}


def _stats(path: Path) -> dict[str, Any]:
    """Returns a file's statistics for data skipping: row count, minimum and maximum of integer columns."""
    metadata = pq.read_metadata(path)
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            name = column.path_in_schema
            if "." in name or column.physical_type not in ("INT32", "INT64"):
                continue
            found = column.statistics
            if found is None or not found.has_min_max or type(found.min) is not int:
                unknown.add(name)
                continue
            least[name] = min(found.min, least.get(name, found.min))
            most[name] = max(found.max, most.get(name, found.max))
    for name in unknown:
        least.pop(name, None)
        most.pop(name, None)
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": {}}
