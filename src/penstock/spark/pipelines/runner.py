"""A loaded pipeline put to work: Spark started, the pipeline run, and what it fails with explained."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from penstock.spark.pipelines.catalogue import Loaded
from penstock.spark.pipelines.failures import explain
from penstock.spark.pipelines.pipeline import Report, Run
from penstock.spark.pipelines.query_progress import Batch
from penstock.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_loaded(
    loaded: Loaded,
    *,
    master: str,
    once: bool,
    ui: bool = False,
    log: Path | None = None,
    on_batch: Callable[[Batch], None],
    on_step: Callable[[str], None],
) -> Report:
    """Run it to its end in a Spark of its own; PenstockError says what went wrong, as cause and cure."""
    on_step(f"starting Spark on {master}")
    spark = open_session(loaded.options.name, master=master, ui=ui, conf=loaded.options.spark, log=log)
    from py4j.protocol import Py4JError  # only now: the session says so if there is no PySpark

    try:
        return run_in(spark, loaded, once=once, log=log, on_batch=on_batch, on_step=on_step)
    finally:
        with suppress(ConnectionError, Py4JError):  # its Java may have died, and that was told
            spark.stop()


def run_in(
    spark: "SparkSession",
    loaded: Loaded,
    *,
    once: bool,
    log: Path | None = None,
    on_batch: Callable[[Batch], None] = lambda batch: None,
    on_step: Callable[[str], None] = lambda step: None,
) -> Report:
    """Run it in a Spark that is there already."""
    run = Run(spark=spark, once=once, on_batch=on_batch, on_step=on_step, base=loaded.base)
    return run_prepared(loaded, run, log=log)


def run_prepared(loaded: Loaded, run: Run, *, log: Path | None = None) -> Report:
    """Run it with what it is to be run with. `run.stopping` may be set by whoever holds it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with _told_to_stop(run, cancels=not loaded.pipeline.streams):
            return loaded.pipeline.run(loaded.options, run)
    except (PySparkException, Py4JError, ConnectionError) as error:
        if run.stopping.is_set():
            raise KeyboardInterrupt from error
        raise explain(error, log) from error


@contextmanager
def _told_to_stop(run: Run, *, cancels: bool) -> Iterator[None]:
    """While it lasts, Ctrl-C and SIGTERM stop the query in order, and the report is written.

    An exception in the middle of a call into Java would leave its reply to the next call. So the pipeline is
    told, and what has no batches to stop between has its jobs cancelled, on a thread with a connection of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        run.stopping.set()
        if cancels:
            threading.Thread(target=run.spark.sparkContext.cancelAllJobs, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
