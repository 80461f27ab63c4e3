"""Spark sessions: the Python that their workers run; a test that times out does not fail the tests after it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.spark.worker_python import worker_python

from .conftest import SparkSessions


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable], "pyspark": [pyspark.__file__]})

    rows = spark.range(1).mapInArrow(where, "python STRING, pyspark STRING").collect()
    assert [tuple(row) for row in rows] == [(sys.executable, pyspark.__file__)]


def test_only_the_zip_files_of_spark_are_taken_from_the_path_of_workers(tmp_path: Path) -> None:
    zips = Path(pyspark.__file__).parent / "python" / "lib"
    cases = {
        f"{zips}/pyspark.zip:{zips}/py4j-1-src.zip:/a:/b.zip:": "/a:/b.zip:",
        f"{zips}/pyspark.zip": "",
        f"/a:{zips}/pyspark.zip": f"/a:{zips}/pyspark.zip",
        "": "",
    }
    command = [worker_python(tmp_path), "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])", "a b"]
    for given, expected in cases.items():
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": given}, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{expected} ['a b']\n"


def test_another_spark_than_the_installed_one_gets_the_plain_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert worker_python(tmp_path) == sys.executable
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_discarded_session_is_replaced_by_another_one(spark_sessions: SparkSessions) -> None:
    before = spark_sessions.current()
    assert before.range(3).count() == 3
    spark_sessions.discard()
    after = spark_sessions.current()
    assert after is not before
    assert after.range(4).count() == 4
