"""The `sql` pipeline: runs Spark SQL over topics and files as tables, into a topic, a lake or the terminal."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.options import named, nested, option, registry_urls, text
from penstock.spark.pipelines.pipeline import Need, Pipeline, Report, ReportTable, Run, StreamOptions
from penstock.spark.pipelines.sinks import (
    Sink,
    check_sink,
    first_rows,
    sink_need,
    start_lake,
    start_topic,
    write_lake,
    write_topic,
)
from penstock.spark.pipelines.tables import Source, check_source, open_source, source_need

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform = Callable[..., "DataFrame"]
SourceOrSink = TypeVar("SourceOrSink", Source, Sink)


class NoFunction(PenstockError):
    """The Python function of a pipeline cannot be loaded, or does not return a DataFrame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions(StreamOptions):
    sources: Mapping[str, Source] = option(named(Source), "The tables that the SQL can name")
    sql: str | None = option(text, "The query", default=None, metavar="SQL")
    python: str | None = option(
        text, "A function instead of SQL, called with the tables by name", default=None, metavar="FILE.py:FUNCTION"
    )
    sink: Sink | None = option(nested(Sink), "Where to write the result; by default the terminal", default=None)
    registry: str | None = option(
        registry_urls, "The schema registry; by default that of the brokers which have the topics", default=None
    )


def _check(options: SqlOptions) -> Iterator[Problem]:
    for name, source in options.sources.items():
        yield from check_source(name, source)
    if options.sink is not None:
        yield from check_sink(options.sink)
    given = [key for key in ("sql", "python") if getattr(options, key) is not None]
    if len(given) == 2:
        yield Problem(options.locations.of("python"), "sql and python are both set; set only one")
    if not given and len(options.sources) > 1:
        yield Problem(options.locations.table, "with several sources, sql or python is required")
    if options.python is not None and ":" not in options.python:
        message = f"python: {options.python!r} is not FILE.py:FUNCTION or MODULE:FUNCTION"
        yield Problem(options.locations.of("python"), message)
    if not given and options.sink is not None and len(options.sources) == 1:
        yield from _check_columns(options, next(iter(options.sources.values())), options.sink)


def _examine(options: SqlOptions) -> Iterator[Problem]:
    if options.sql is not None:
        from penstock.spark.pipelines.sql_check import Unreadable, sql_problems  # late: only this needs the parser

        tables = {name: source.columns() for name, source in options.sources.items()}
        location = options.locations.of("sql")
        try:
            yield from [Problem(location, message) for message in sql_problems(options.sql, tables)]
        except Unreadable as error:
            yield Problem(location, error.message, is_certain=False)


def _check_columns(options: SqlOptions, source: Source, sink: Sink) -> Iterator[Problem]:
    """Yields problems if the sink needs columns that the source lacks. Only for pipelines without SQL."""
    columns = source.columns()
    if columns is None:
        return
    wanted = [("key", sink.key)] if sink.key is not None else []
    wanted += [("partition_by", name) for name in sink.partition_by]
    for key, name in wanted:
        if name not in columns:
            message = f"sink: there is no column {name!r} for {key}; there are {', '.join(columns)}"
            yield Problem(sink.locations.of(key), message)


def _needs(options: SqlOptions) -> Iterator[Need]:
    for source in options.sources.values():
        need = source_need(source, options.bootstrap)
        if need is not None:
            yield need
    if options.sink is not None:
        need = sink_need(options.sink, options.bootstrap)
        if need is not None:
            yield need


def _run(options: SqlOptions, run: Run) -> Report:
    sink = None if options.sink is None else _with_registry(options.sink, options)
    # Output to the terminal is a batch query, as a streaming query would not end.
    as_stream = sink is not None and any(source.is_stream for source in options.sources.values())
    tables = {
        name: open_source(
            run, _with_registry(source, options), options.bootstrap, as_stream=as_stream and source.is_stream
        )
        for name, source in options.sources.items()
    }
    result = _result(options, run, tables)
    if sink is None or (sink.topic is None and sink.path is None):
        columns, rows = first_rows(result)
        report_table = ReportTable(title="result", columns=columns, rows=rows)
        return Report(verdict=f"{len(rows)} rows shown", tables=[report_table])
    where = f"topic {sink.topic}" if sink.topic is not None else str(run.path(sink.path or ""))
    if as_stream:
        if sink.topic is not None:
            totals = start_topic(run, result, sink, options)
        else:
            totals, _ = start_lake(run, result, sink, options)
        return Report(verdict=f"{totals.rows} rows were read; results are in {where}", facts=totals.facts())
    run.on_step(f"writing to {where}")
    if sink.topic is not None:
        write_topic(result, sink, options)
        return Report(verdict=f"results are in {where}")
    return Report(verdict=f"{write_lake(run, result, sink)} rows were added to {where}")


def _with_registry(part: SourceOrSink, options: SqlOptions) -> SourceOrSink:
    """Returns a source or a sink with the registry of the pipeline, unless it names one."""
    return part if part.registry is not None else replace(part, registry=options.registry)


def _result(options: SqlOptions, run: Run, tables: Mapping[str, "DataFrame"]) -> "DataFrame":
    if options.python is not None:
        return _call_function(load_function(options.python, run.base), tables, options.python)
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    if options.sql is not None:
        return run.spark.sql(options.sql)
    return next(iter(tables.values()))


def load_function(where: str, base: Path) -> Transform:
    """Loads the function `FILE.py:FUNCTION` (relative to `base`) or `MODULE:FUNCTION`, or raises NoFunction."""
    module_name, _, name = where.rpartition(":")
    try:
        if module_name.endswith(".py"):
            path = (base / module_name).resolve()
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None:
                raise ImportError(f"{path} cannot be loaded")
            module: Any = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
    except (ImportError, OSError, SyntaxError) as error:
        raise NoFunction(f"python: {module_name} cannot be imported: {error}") from error
    found: Transform | None = getattr(module, name, None)
    if not callable(found):
        raise NoFunction(f"python: there is no function {name!r} in {module_name}")
    return found


def _call_function(function: Transform, tables: Mapping[str, "DataFrame"], where: str) -> "DataFrame":
    from pyspark.sql import DataFrame

    try:
        result = function(**tables)
    except TypeError as error:
        raise NoFunction(f"python: {where} must accept the keyword arguments {', '.join(tables)}: {error}") from error
    if not isinstance(result, DataFrame):
        raise NoFunction(f"python: {where} returned {type(result).__name__}; it must return a DataFrame")
    return result


PIPELINE: Final = Pipeline(
    name="sql",
    summary="Runs Spark SQL over topics as tables, into a topic, a lake or the terminal",
    about="""\
Each source is a table: a topic whose values are JSON (with a given or inferred schema), text or binary, or a folder
of files. With JSON the fields are columns, beside _key, _topic, _partition, _offset, _timestamp and _headers.
Windows and streaming joins need a watermark. Results are written exactly once. Instead of SQL, a Python function can
compute the result from the tables.""",
    example="""\
penstock pipeline run sql -o sources.orders.topic=orders -o "sql=SELECT item, count(*) FROM orders GROUP BY item"
""",
    options=SqlOptions,
    needs=_needs,
    check=_check,
    examine=_examine,
    run=_run,
    streams=True,
)
