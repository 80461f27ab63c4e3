"""A lake of plain Parquet files that any reader can use, with a small commit log.

A commit is a file that lists staged files to move, files to remove, and new progress marks (named numbers). The batch
is committed once this file exists; an interrupted move is repeated at the next use of the lake. A concurrent reader
may miss files for a moment, or see small files beside the merged file; it never sees an uncommitted batch.
"""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.pipelines.lake import (
    PRIVATE_FOLDER,
    SMALL_SHARE,
    DataFile,
    Lake,
    LakeMismatch,
    LakeMissing,
    check_marks,
    missing_columns,
    replace_synced,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_COMMITS_KEPT: Final = 100
"""Number of applied commit files that are kept for inspection; older commit files are deleted."""


class ParquetLake(Lake):
    """A lake of Parquet files. Its schema, marks (progress numbers) and last commit are in `_penstock/state.json`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._commits: Final = folder / PRIVATE_FOLDER / "commits"
        self._file: Final = folder / PRIVATE_FOLDER / "state.json"

    def prepare(self, schema: "StructType", partition_by: Sequence[str]) -> None:
        wanted = json.loads(schema.json())
        for column in wanted["fields"]:
            column["nullable"] = True
        if not self._file.is_file():
            self._commits.mkdir(parents=True, exist_ok=True)
            self._save({"applied": 0, "marks": {}, "schema": wanted, "partition_by": list(partition_by)})
            return
        state = self._recover_state()
        if state["partition_by"] != list(partition_by):
            raise LakeMismatch(
                f"{self.folder} is partitioned by {', '.join(state['partition_by']) or 'nothing'}, not by "
                f"{', '.join(partition_by) or 'nothing'}; write to another path"
            )
        lacking = missing_columns(state["schema"], wanted, self.folder)
        if lacking:
            state["schema"]["fields"] += lacking
            self._save(state)

    def marks(self, names: Sequence[str]) -> dict[str, int]:
        if not self._file.is_file():
            return {}
        known = self._recover_state()["marks"]
        return {name: known[name] for name in names if name in known}

    def commit(self, files: Sequence[DataFile], marks: Mapping[str, int], before: Mapping[str, int]) -> None:
        moves = [[str(file.staged.relative_to(self.folder)), file.name] for file in files]
        self._write_commit({"moves": moves, "removes": [], "marks": dict(marks)}, before)

    def compact(self, target_bytes: int) -> int:
        self._recover_state()
        folders: dict[Path, list[Path]] = {}
        for path in sorted(self.folder.rglob("*.parquet")):
            parts = path.relative_to(self.folder).parts
            if parts[0] != PRIVATE_FOLDER and path.stat().st_size * SMALL_SHARE < target_bytes:
                folders.setdefault(path.parent, []).append(path)
        gone = 0
        for folder, small in folders.items():
            for group in _group_files(small, target_bytes):
                name = f"{uuid.uuid4().hex}-compact.parquet"
                staged = self.staging / name
                staged.parent.mkdir(parents=True, exist_ok=True)
                _merge(group, staged)
                move = [str(staged.relative_to(self.folder)), str((folder / name).relative_to(self.folder))]
                removes = [str(path.relative_to(self.folder)) for path in group]
                self._write_commit({"moves": [move], "removes": removes, "marks": {}}, {})
                gone += len(group) - 1
        return gone

    def read(self, spark: "SparkSession") -> "DataFrame":
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(self._load_state()["schema"])
        return spark.read.schema(schema).parquet(str(self.folder))

    # -- commits

    def _write_commit(self, commit: Mapping[str, Any], before: Mapping[str, int]) -> None:
        state = self._recover_state()
        check_marks(state["marks"], before, commit["marks"], self.folder)
        number = state["applied"] + 1
        draft = self._commits / f".{uuid.uuid4().hex}"
        replace_synced(draft, json.dumps(commit))
        try:
            # Creating a hard link is atomic and never replaces a file: only one of two writers succeeds.
            os.link(draft, self._commits / f"{number:020}.json")
        except FileExistsError:
            raise LakeMismatch(f"another writer is writing to {self.folder}; stop one of the two") from None
        finally:
            draft.unlink()
        self._apply(state, number, commit)

    def _recover_state(self) -> dict[str, Any]:
        """Returns the state after the last commit. Completes that commit first if it was interrupted."""
        state = self._load_state()
        while (path := self._commits / f"{state['applied'] + 1:020}.json").is_file():
            self._apply(state, state["applied"] + 1, json.loads(path.read_text()))
        return state

    def _load_state(self) -> dict[str, Any]:
        """Returns the state as stored on disk. Does not complete an interrupted commit: readers must not write."""
        if not self._file.is_file():
            raise LakeMissing(f"there is no table in {self.folder}")
        state: dict[str, Any] = json.loads(self._file.read_text())
        return state

    def _apply(self, state: dict[str, Any], number: int, commit: Mapping[str, Any]) -> None:
        for source, target in commit["moves"]:
            (self.folder / target).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # it was moved before the interruption
                os.replace(self.folder / source, self.folder / target)
        for name in commit["removes"]:
            (self.folder / name).unlink(missing_ok=True)
        state["applied"] = number
        state["marks"] |= commit["marks"]
        self._save(state)
        (self._commits / f"{number - _COMMITS_KEPT:020}.json").unlink(missing_ok=True)

    def _save(self, state: Mapping[str, Any]) -> None:
        replace_synced(self._file, json.dumps(state))


def _group_files(paths: Sequence[Path], target_bytes: int) -> list[list[Path]]:
    """Returns groups of files to merge; each has at least two files and about `target_bytes` in total."""
    groups: list[list[Path]] = [[]]
    filled = 0
    for path in paths:
        size = path.stat().st_size
        if filled + size > target_bytes and groups[-1]:
            groups.append([])
            filled = 0
        groups[-1].append(path)
        filled += size
    return [group for group in groups if len(group) > 1]


def _merge(paths: Sequence[Path], target: Path) -> None:
    """Merges Parquet files into one file. Holds only one row group at a time in memory."""
    files = [pq.ParquetFile(path) for path in paths]
    try:
        schema = pa.unify_schemas([file.schema_arrow.remove_metadata() for file in files])
        with pq.ParquetWriter(target, schema, compression="zstd") as writer:
            for file in files:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group).replace_schema_metadata()
                    writer.write_table(_add_missing_columns(table, schema))
    finally:
        for file in files:
            file.close()


def _add_missing_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the table with all columns of `schema`; columns that the table lacks are filled with nulls."""
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
