"""The Spark session of pipelines: local or on a cluster, quiet, and no larger than the machine."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.foundation.errors import PenstockError
from penstock.spark.java import provide_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_DEFAULT: Final = "local[*]"
QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Where PySpark reports a query that failed, by the kind of the query."""
_MIB: Final = 1024 * 1024
_DRIVER_MIB_LEAST: Final = 512
_DRIVER_MIB_MOST: Final = 8192
_QUIET: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


class SparkMissing(PenstockError):
    """PySpark is not installed."""


class SparkFailed(PenstockError):
    """Spark did not start."""


def memory_mib(machine_mib: int) -> int:
    """What the driver may use: a quarter of the machine, within bounds. In local mode it is also the executor.

    >>> memory_mib(16384)
    4096
    """
    return max(_DRIVER_MIB_LEAST, min(_DRIVER_MIB_MOST, machine_mib // 4))


def settings(
    master: str, *, ui: bool = False, machine_mib: int | None = None, cores: int | None = None
) -> dict[str, str]:
    """What a session is given, before what the pipeline itself asks for."""
    machine_mib = machine_mib or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    cores = cores or os.cpu_count() or 1
    found = {
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.driver.memory": f"{memory_mib(machine_mib)}m",
        # Arrow both ways between Spark and Python: several times what rows give.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Without it a source that takes filters is an error.
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if is_local(master):
        found |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            # 200 is for clusters: each is a file and a task in every micro-batch.
            "spark.sql.shuffle.partitions": str(max(2, cores)),
            "spark.default.parallelism": str(max(2, cores)),
        }
    return found


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def open_session(
    name: str,
    *,
    master: str = MASTER_DEFAULT,
    ui: bool = False,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> "SparkSession":
    """Start Spark, with the `penstock` source registered. What the JVM says goes to `log`, if there is one."""
    if find_spec("pyspark") is None:
        raise SparkMissing("Spark is not installed: pip install 'penstock[spark]'")
    provide_java()
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if is_local(master) or master.startswith("spark://"):
        # Else workers take the first python3 of the PATH. Images of YARN and Kubernetes bring their own.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from penstock.spark import register

    builder = SparkSession.builder.appName(f"penstock {name}").master(master)
    wanted = settings(master, ui=ui) | dict(conf or {})
    if log is not None:
        errors_to(log)
        quiet = log.with_name("log4j2.properties")
        quiet.write_text(_QUIET)
        given = wanted.get("spark.driver.extraJavaOptions", "")
        wanted["spark.driver.extraJavaOptions"] = f"{given} -Dlog4j2.configurationFile=file:{quiet.resolve()}".strip()
    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        with _heard_by(log):
            spark = builder.getOrCreate()
    except (PySparkException, RuntimeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        where = f"; {log} has all that it said" if log else ""
        raise SparkFailed(f"Spark did not start on {master}: {first}{where}") from error
    register(spark)
    return spark


def errors_to(log: Path) -> None:
    """Have PySpark write the details of a failed query to the log; otherwise it prints JSON with a Java stack."""
    from pyspark.logger import PySparkLogger

    for name in QUERY_LOGGERS:
        logger = PySparkLogger.getLogger(name)
        for handler in tuple(logger.handlers):
            logger.removeHandler(handler)
        logger.addHandler(logging.FileHandler(log))


@contextmanager
def _heard_by(log: Path | None) -> Iterator[None]:
    """While it lasts, standard error is the log: the JVM that is started meanwhile keeps it for good."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    theirs = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(theirs, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)
        os.close(theirs)
