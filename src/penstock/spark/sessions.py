"""Creates Spark sessions: local, on a cluster or through Spark Connect, with quiet logs and bounded memory."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.spark.connect import connect, is_connect
from penstock.spark.errors import SparkFailed, SparkMissing
from penstock.spark.home import slim_home_set
from penstock.spark.java import provide_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_DEFAULT: Final = "local[*]"
QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Names of the loggers that PySpark writes failed queries to."""
_MIB: Final = 1024 * 1024
_DRIVER_MIB_LEAST: Final = 512
_DRIVER_MIB_MOST: Final = 8192
_SQL_SETTINGS: Final = {
    # Arrow transfer between Spark and Python is several times faster than row by row.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Without it Spark rejects a data source that accepts filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_LOG4J2_PROPERTIES: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def driver_memory_mib(machine_mib: int) -> int:
    """Returns the memory for Spark's driver in MiB: a quarter of the machine's, within a minimum and a maximum.

    >>> driver_memory_mib(16384)
    4096
    """
    return max(_DRIVER_MIB_LEAST, min(_DRIVER_MIB_MOST, machine_mib // 4))


def settings(
    master: str, *, ui: bool = False, machine_mib: int | None = None, cores: int | None = None
) -> dict[str, str]:
    """Returns the default Spark settings of a session; the pipeline's options override them. `machine_mib`
    (memory) and `cores` determine driver memory and, on a local master, parallelism; None: those of this machine."""
    machine_mib = machine_mib or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    cores = cores or os.cpu_count() or 1
    found = {
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.driver.memory": f"{driver_memory_mib(machine_mib)}m",
        **_SQL_SETTINGS,
    }
    if is_local(master):
        found |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            # Spark's default of 200 is for clusters: each is a file and a task in every micro-batch.
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
    """Starts Spark and registers the `penstock` data source. JVM output is written to `log`, if given.

    If `master` is the address of a Spark Connect server (`sc://…`), connects to it instead."""
    if is_connect(master):
        if log is not None:
            redirect_query_errors(log)
        return connect_session(name, master, conf=conf)
    if find_spec("pyspark") is None:
        raise SparkMissing("Spark is not installed: pip install 'penstock[spark]'")
    provide_java()
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if is_local(master) or master.startswith("spark://"):
        # Otherwise workers run the first python3 on the PATH. YARN and Kubernetes images have their own.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from penstock.spark import register

    builder = SparkSession.builder.appName(f"penstock {name}").master(master)
    wanted = settings(master, ui=ui) | dict(conf or {})
    if log is not None:
        redirect_query_errors(log)
        wanted["spark.driver.extraJavaOptions"] = log4j2_option(log, wanted.get("spark.driver.extraJavaOptions", ""))
    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        with _redirect_stderr(log), slim_home_set() if is_local(master) else nullcontext():
            spark = builder.getOrCreate()
    except (PySparkException, RuntimeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        where = f"; see {log} for the details" if log else ""
        raise SparkFailed(f"Spark did not start on {master}: {first}{where}") from error
    register(spark)
    return spark


def log4j2_option(log: Path, given: str) -> str:
    """Writes a Log4j configuration beside the log; returns the Java options `given` and the one that names it."""
    log4j2 = log.with_name("log4j2.properties")
    log4j2.write_text(_LOG4J2_PROPERTIES)
    return f"{given} -Dlog4j2.configurationFile=file:{log4j2.resolve()}".strip()


def redirect_query_errors(log: Path) -> None:
    """Makes PySpark write details of failed queries to the log file instead of printing JSON with a stack trace."""
    from pyspark.logger import PySparkLogger

    for name in QUERY_LOGGERS:
        logger = PySparkLogger.getLogger(name)
        for handler in tuple(logger.handlers):
            logger.removeHandler(handler)
        logger.addHandler(logging.FileHandler(log))


@contextmanager
def _redirect_stderr(log: Path | None) -> Iterator[None]:
    """Redirects standard error to the log file in the `with` block. A JVM started in the block keeps this target."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    saved_fd = os.dup(2)
    log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(log_fd, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved_fd, 2)
        os.close(saved_fd)
        os.close(log_fd)


def session(
    name: str = "penstock",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Returns a Spark session in which `format("penstock")` works: it finds Java, sets the Python of the workers, and
    has settings that suit this machine.

    `master`: where Spark runs; by default all cores of this machine. `remote`: a Spark Connect server instead, such
    as `sc://localhost:15002`. `conf`: Spark settings by name, which override the defaults.

    >>> spark = penstock.spark.session()
    """
    if remote is not None and master is not None:
        raise SparkFailed("give master or remote, not both")
    if remote is not None and not is_connect(remote):
        raise SparkFailed(f"remote is {remote!r}; it must be the address of a Spark Connect server: sc://HOST:PORT")
    return open_session(name, master=choose_master(master, remote), conf=conf)


def choose_master(master: str | None, remote: str | None) -> str:
    """Returns where Spark runs: `master`, else the Spark Connect server `remote`, else that of SPARK_REMOTE (an
    environment variable of Spark), else this machine."""
    return master or remote or os.environ.get("SPARK_REMOTE") or MASTER_DEFAULT


def connect_session(name: str, remote: str, *, conf: Mapping[str, str] | None = None) -> "SparkSession":
    """Connects to a Spark Connect server and registers the `penstock` data source there."""
    from penstock.spark import register
    from penstock.spark.warm_server import with_token

    spark = connect(name, with_token(remote), _SQL_SETTINGS | dict(conf or {}))
    register(spark)
    return spark
