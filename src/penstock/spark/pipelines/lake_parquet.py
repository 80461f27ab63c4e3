"""A folder of Parquet files that any reader can use, with a small log of its own beside them.

A commit is a file that says which staged files go where, which ones go away, and what the marks are then. Writing it
is the decision; carrying it out is done again until it is done. A reader that comes in between may miss files for a
moment, or see small ones beside the large one that they became; it never sees a batch that did not count.
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
    OURS,
    SMALL_SHARE,
    DataFile,
    Lake,
    LakeMismatch,
    LakeMissing,
    check_marks,
    merged,
    replace_synced,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_KEPT: Final = 100
"""Commits that are kept for people to look at after they were carried out."""


class ParquetLake(Lake):
    """Its state is what the last commit left: `_penstock/state.json`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._commits: Final = folder / OURS / "commits"
        self._file: Final = folder / OURS / "state.json"

    def prepare(self, schema: "StructType", partition_by: Sequence[str]) -> None:
        wanted = json.loads(schema.json())
        for column in wanted["fields"]:
            column["nullable"] = True
        if not self._file.is_file():
            self._commits.mkdir(parents=True, exist_ok=True)
            self._save({"applied": 0, "marks": {}, "schema": wanted, "partition_by": list(partition_by)})
            return
        state = self._state()
        if state["partition_by"] != list(partition_by):
            raise LakeMismatch(
                f"{self.folder} is partitioned by {', '.join(state['partition_by']) or 'nothing'}, not by "
                f"{', '.join(partition_by) or 'nothing'}; write to another path"
            )
        lacking = merged(state["schema"], wanted, self.folder)
        if lacking:
            state["schema"]["fields"] += lacking
            self._save(state)

    def marks(self, names: Sequence[str]) -> dict[str, int]:
        if not self._file.is_file():
            return {}
        known = self._state()["marks"]
        return {name: known[name] for name in names if name in known}

    def commit(self, files: Sequence[DataFile], marks: Mapping[str, int], before: Mapping[str, int]) -> None:
        moves = [[str(file.staged.relative_to(self.folder)), file.name] for file in files]
        self._decide({"moves": moves, "removes": [], "marks": dict(marks)}, before)

    def compact(self, target_bytes: int) -> int:
        self._state()
        folders: dict[Path, list[Path]] = {}
        for path in sorted(self.folder.rglob("*.parquet")):
            parts = path.relative_to(self.folder).parts
            if parts[0] != OURS and path.stat().st_size * SMALL_SHARE < target_bytes:
                folders.setdefault(path.parent, []).append(path)
        gone = 0
        for folder, small in folders.items():
            for group in _groups(small, target_bytes):
                name = f"{uuid.uuid4().hex}-compact.parquet"
                staged = self.folder / OURS / "staging" / name
                staged.parent.mkdir(parents=True, exist_ok=True)
                _merge(group, staged)
                move = [str(staged.relative_to(self.folder)), str((folder / name).relative_to(self.folder))]
                removes = [str(path.relative_to(self.folder)) for path in group]
                self._decide({"moves": [move], "removes": removes, "marks": {}}, {})
                gone += len(group) - 1
        return gone

    def read(self, spark: "SparkSession") -> "DataFrame":
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(self._peek()["schema"])
        return spark.read.schema(schema).parquet(str(self.folder))

    # -- decisions

    def _decide(self, commit: Mapping[str, Any], before: Mapping[str, int]) -> None:
        state = self._state()
        check_marks(state["marks"], before, commit["marks"], self.folder)
        number = state["applied"] + 1
        draft = self._commits / f".{uuid.uuid4().hex}"
        replace_synced(draft, json.dumps(commit))
        try:
            # A link is never half there, and never replaces: of two writers one has decided, and the other has not.
            os.link(draft, self._commits / f"{number:020}.json")
        except FileExistsError:
            raise LakeMismatch(f"something else writes to {self.folder}; stop one of the two") from None
        finally:
            draft.unlink()
        self._apply(state, number, commit)

    def _state(self) -> dict[str, Any]:
        """The state after every commit that was decided: one that was interrupted is carried out first."""
        state = self._peek()
        while (path := self._commits / f"{state['applied'] + 1:020}.json").is_file():
            self._apply(state, state["applied"] + 1, json.loads(path.read_text()))
        return state

    def _peek(self) -> dict[str, Any]:
        """The state as it is written: readers carry nothing out."""
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
        (self._commits / f"{number - _KEPT:020}.json").unlink(missing_ok=True)

    def _save(self, state: Mapping[str, Any]) -> None:
        replace_synced(self._file, json.dumps(state))


def _groups(paths: Sequence[Path], target_bytes: int) -> list[list[Path]]:
    """Files of one folder to be put together: at least two, and about the target size in all."""
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
    """One file of several, row group by row group: memory for one of them."""
    files = [pq.ParquetFile(path) for path in paths]
    try:
        schema = pa.unify_schemas([file.schema_arrow.remove_metadata() for file in files])
        with pq.ParquetWriter(target, schema, compression="zstd") as writer:
            for file in files:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group).replace_schema_metadata()
                    writer.write_table(_widened(table, schema))
    finally:
        for file in files:
            file.close()


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """With the columns that other files have, and this one was written before."""
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
