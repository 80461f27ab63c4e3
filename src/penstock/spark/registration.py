"""Registers the `penstock` data source with a Spark session, and checks the Python that Spark's workers run."""

import logging
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from penstock.foundation.errors import PenstockError
from penstock.spark.source import PenstockDataSource
from penstock.spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_MODULES: Final = ("penstock.spark.source", "pyarrow")
_IMPORTS: Final = f"import {', '.join(_MODULES)}"
_TIMEOUT_S: Final = 60.0
_OTHER_PYTHON: Final = re.compile(
    r"PYTHON_VERSION_MISMATCH\].*?version:? (\d+\.\d+).*?driver:? (\d+\.\d+)", re.DOTALL
)
_ADVICE: Final = (
    "Install penstock[spark] for it, or set PYSPARK_PYTHON to a Python that has it before the session starts (on a "
    "cluster: spark.pyspark.python, or spark.executorEnv.PYTHONPATH)"
)


class WorkersLackPenstock(PenstockError):
    """Spark's Python workers cannot import this package."""


def register(spark: "SparkSession", *, check: bool = True) -> None:
    """Registers `format("penstock")`. Not needed if this package is installed in Spark's Python environment.

    `check`: whether to test that Spark's Python workers can import the package; on a local master they are given the
    Python of this process if they cannot. Raises WorkersLackPenstock.

    >>> register(spark)
    >>> spark.read.format("penstock").option("subscribe", "orders")
    """
    if check:
        _check_workers(spark)
    spark.dataSource.register(PenstockDataSource)


def _check_workers(spark: Any) -> None:
    context = _classic_context(spark)
    if context is None:
        _check_by_job(spark)
    elif str(context.master).startswith("local"):
        if context.pythonExec == sys.executable or not _can_import(context.pythonExec):
            python = worker_python()
            log.info("spark_python_changed from=%s to=%s", context.pythonExec, python)
            context.pythonExec = os.environ["PYSPARK_PYTHON"] = python
    elif context.pythonExec != sys.executable:
        _check_by_job(spark)


def _classic_context(spark: Any) -> Any:
    """Returns the SparkContext of a session; None with Spark Connect, whose client has none."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None


def _can_import(python: str) -> bool:
    """Returns whether a Python interpreter can import this package."""
    try:
        return not subprocess.run(
            [python, "-c", _IMPORTS], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def _check_by_job(spark: Any) -> None:
    """Runs a task that imports this package. Raises WorkersLackPenstock, with the Python that was used."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as fn

    modules = _MODULES

    def probe() -> str:  # sent by value: it must not refer to this package
        import importlib
        import sys

        for module in modules:
            try:
                importlib.import_module(module)
            except ImportError as error:
                return f"{sys.executable}, which lacks a package: {error}"
        return ""

    probe.__module__ = "__main__"
    ask = fn.udf(probe, "string", useArrow=False)  # with Arrow it would need pyarrow and pandas to run at all
    try:
        found = spark.range(1, numPartitions=1).select(ask().alias("reason")).collect()[0].reason
    except PySparkException as error:
        mismatch = _OTHER_PYTHON.search(str(error))
        if mismatch is None:
            raise
        found = f"Python {mismatch[1]}, and this is Python {mismatch[2]}"
    if found:
        raise WorkersLackPenstock(f"Spark's workers run {found}. {_ADVICE}")
