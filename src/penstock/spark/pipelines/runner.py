"""Runs a loaded pipeline: starts Spark, handles signals, and explains failures."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from penstock.spark.connect import is_connect, without_token
from penstock.spark.pipelines.catalogue import LoadedPipeline
from penstock.spark.pipelines.failures import explain
from penstock.spark.pipelines.pipeline import Report, Run
from penstock.spark.pipelines.query_progress import Batch
from penstock.spark.sessions import choose_master, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_loaded(
    loaded: LoadedPipeline,
    *,
    master: str | None,
    once: bool,
    ui: bool = False,
    log: Path | None = None,
    on_batch: Callable[[Batch], None],
    on_step: Callable[[str], None],
) -> Report:
    """Runs a pipeline in a new Spark session. `master`: None for the pipeline's option `remote`, or the default.
    `once`: end when all records available at the start are processed. `log`: file for Spark's log. `on_step` gets a
    description of each step. Raises PenstockError if Spark fails."""
    master = choose_master(master, loaded.options.remote)
    on_step(f"connecting to {without_token(master)}" if is_connect(master) else f"starting Spark on {master}")
    began_s = time.monotonic()
    spark = open_session(loaded.options.name, master=master, ui=ui, conf=loaded.options.spark, log=log)
    on_step(f"Spark {spark.version} is ready after {time.monotonic() - began_s:.1f} s; reading schemas")
    from py4j.protocol import Py4JError  # after open_session, which reports a missing PySpark

    try:
        details = None if is_connect(master) else log  # those of a Spark Connect server are in its own log
        return run_in(spark, loaded, once=once, log=details, on_batch=on_batch, on_step=on_step)
    finally:
        with suppress(ConnectionError, Py4JError):  # the JVM may have died, which is already reported
            spark.stop()


def run_in(
    spark: "SparkSession",
    loaded: LoadedPipeline,
    *,
    once: bool,
    log: Path | None = None,
    on_batch: Callable[[Batch], None] = lambda batch: None,
    on_step: Callable[[str], None] = lambda step: None,
) -> Report:
    """Runs a pipeline in an existing Spark session. `once`: ends the run when all records available at its start
    are processed. `log`: the file with Spark's log, which error messages name."""
    run = Run(spark=spark, once=once, on_batch=on_batch, on_step=on_step, base=loaded.base)
    return run_prepared(loaded, run, log=log)


def run_prepared(loaded: LoadedPipeline, run: Run, *, log: Path | None = None) -> Report:
    """Runs a pipeline in `run.spark` until it ends or `run.stopping` is set. `log`: Spark's log, named in errors."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with _stop_on_signals(run, cancels=not loaded.pipeline.streams):
            return loaded.pipeline.run(loaded.options, run)
    except (PySparkException, Py4JError, ConnectionError) as error:
        if run.stopping.is_set():
            raise KeyboardInterrupt from error
        raise explain(error, log) from error


@contextmanager
def _stop_on_signals(run: Run, *, cancels: bool) -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM stop the pipeline cleanly, so that the report is still written.

    The signal handler only sets `run.stopping`: an exception during a call would break the connection to Java.
    If `cancels` (a pipeline without micro-batches), a thread with its own connection also cancels all Spark jobs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        run.stopping.set()
        if cancels:
            threading.Thread(target=run.spark.interruptAll, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
