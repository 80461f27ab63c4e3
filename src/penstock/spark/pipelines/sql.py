"""`sql`: any Spark SQL over topics and files as tables, into a topic, a lake, or onto the screen."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.options import named, nested, option, text
from penstock.spark.pipelines.pipeline import Need, Pipeline, Report, Run, Sheet, Streaming
from penstock.spark.pipelines.sinks import (
    Sink,
    check_sink,
    shown,
    sink_need,
    start_lake,
    start_topic,
    write_lake,
    write_topic,
)
from penstock.spark.pipelines.tables import Source, check_source, need_of, open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform = Callable[..., "DataFrame"]


class NoFunction(PenstockError):
    """The Python function of a pipeline cannot be had, or does not give a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions(Streaming):
    sources: Mapping[str, Source] = option(named(Source), "The tables that the SQL can name")
    sql: str | None = option(text, "What to select from them", default=None, metavar="SQL")
    python: str | None = option(
        text, "A function instead of SQL: it takes the tables by name", default=None, metavar="FILE.py:FUNCTION"
    )
    sink: Sink | None = option(nested(Sink), "Where the result goes; onto the screen if it is left out", default=None)


def _check(options: SqlOptions) -> Iterator[Problem]:
    for name, source in options.sources.items():
        yield from check_source(name, source)
    if options.sink is not None:
        yield from check_sink(options.sink)
    given = [key for key in ("sql", "python") if getattr(options, key) is not None]
    if len(given) == 2:
        yield Problem(options.written.place("python"), "it has both sql and python; choose one")
    if not given and len(options.sources) > 1:
        yield Problem(options.written.at, "with several sources there must be sql or python that says what to do")
    if options.python is not None and ":" not in options.python:
        message = f"python: {options.python!r} is not FILE.py:FUNCTION or MODULE:FUNCTION"
        yield Problem(options.written.place("python"), message)
    if not given and options.sink is not None and len(options.sources) == 1:
        yield from _check_columns(options, next(iter(options.sources.values())), options.sink)


def _examine(options: SqlOptions) -> Iterator[Problem]:
    if options.sql is not None:
        from penstock.spark.pipelines.sql_check import Unreadable, sql_problems  # a parser, which only this needs

        tables = {name: source.columns() for name, source in options.sources.items()}
        place = options.written.place("sql")
        try:
            yield from [Problem(place, message) for message in sql_problems(options.sql, tables)]
        except Unreadable as error:
            yield Problem(place, error.message, is_certain=False)


def _check_columns(options: SqlOptions, source: Source, sink: Sink) -> Iterator[Problem]:
    """Without SQL the columns of the source are those of the sink, which may be known already."""
    columns = source.columns()
    if columns is None:
        return
    wanted = [("key", sink.key)] if sink.key is not None else []
    wanted += [("partition_by", name) for name in sink.partition_by]
    for key, name in wanted:
        if name not in columns:
            message = f"sink: there is no column {name!r} for {key}; there are {', '.join(columns)}"
            yield Problem(sink.written.place(key), message)


def _needs(options: SqlOptions) -> Iterator[Need]:
    for source in options.sources.values():
        need = need_of(source, options.bootstrap)
        if need is not None:
            yield need
    if options.sink is not None:
        need = sink_need(options.sink, options.bootstrap)
        if need is not None:
            yield need


def _run(options: SqlOptions, run: Run) -> Report:
    sink = options.sink
    # What goes onto the screen is read as it is now: nobody looks at a stream that has no end.
    as_stream = sink is not None and any(source.is_stream for source in options.sources.values())
    tables = {
        name: open_source(run, source, options.bootstrap, as_stream=as_stream and source.is_stream)
        for name, source in options.sources.items()
    }
    result = _result(options, run, tables)
    if sink is None or (sink.topic is None and sink.path is None):
        columns, rows = shown(result)
        sheet = Sheet(title="result", columns=columns, rows=rows)
        return Report(verdict=f"{len(rows)} rows are shown", sheets=[sheet])
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


def _result(options: SqlOptions, run: Run, tables: Mapping[str, "DataFrame"]) -> "DataFrame":
    if options.python is not None:
        return _called(load_function(options.python, run.base), tables, options.python)
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    if options.sql is not None:
        return run.spark.sql(options.sql)
    return next(iter(tables.values()))


def load_function(where: str, base: Path) -> Transform:
    """`FILE.py:FUNCTION` beside the pipeline, or `MODULE:FUNCTION`."""
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


def _called(function: Transform, tables: Mapping[str, "DataFrame"], where: str) -> "DataFrame":
    from pyspark.sql import DataFrame

    try:
        result = function(**tables)
    except TypeError as error:
        raise NoFunction(f"python: {where} is called with {', '.join(tables)} by name: {error}") from error
    if not isinstance(result, DataFrame):
        raise NoFunction(f"python: {where} returned {type(result).__name__}, and a DataFrame is expected")
    return result


PIPELINE: Final = Pipeline(
    name="sql",
    summary="Any Spark SQL over topics as tables, into a topic, a lake, or onto the screen",
    about="""\
Each source is a table: a topic whose values are JSON (by a schema that is given or inferred), text or bytes, or a
folder of files. With JSON the fields are columns, and _key, _topic, _partition, _offset, _timestamp and _headers
stand beside them. Windows and streaming joins need a watermark. Results go out exactly once. Instead of SQL, a
Python function can make the result of the tables.""",
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
