"""A test that times out does not fail the tests after it."""

import os
import sys
from pathlib import Path

import pytest

from penstock.spark.home import slim_home_set

from .conftest import SparkSessions


@pytest.mark.slow
def test_a_discarded_session_is_replaced_by_another_one(spark_sessions: SparkSessions) -> None:
    before = spark_sessions.current()
    assert before.range(3).count() == 3
    spark_sessions.discard()
    after = spark_sessions.current()
    assert after is not before
    assert after.range(4).count() == 4


def test_workers_import_pyspark_from_files_not_from_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with slim_home_set():
        home = Path(os.environ["SPARK_HOME"])
        assert (home / "bin" / "spark-submit").is_file()
        assert list((home / "jars").glob("spark-core_*.jar"))
        assert not (home / "python").exists()
    assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", "another")
    with slim_home_set():
        assert "SPARK_HOME" not in os.environ
