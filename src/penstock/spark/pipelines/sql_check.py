"""Checks the SQL of a pipeline without Spark: syntax, tables, and columns where they are known.

Only definite mistakes are errors. Spark supports more SQL than this parser: unparsable SQL is only a warning.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.document import suggest

Tables = Mapping[str, list[str] | None]
"""The column names of each table, by table name; None for a table whose columns are only known after reading."""
DIALECT: Final = "spark"
_WINDOW: Final = re.compile(r"\bwindow(?=\s*\()", re.IGNORECASE)
"""Matches the name of Spark's `window` function, which the parser mistakes for the keyword WINDOW."""


class Unreadable(PenstockError):
    """The parser cannot read this SQL; Spark may be able to."""


def sql_problems(sql: str, tables: Tables) -> Iterator[str]:
    """Yields the problems of a query over these tables. Raises Unreadable if the SQL cannot be parsed.

    >>> list(sql_problems("SELECT itm FROM orders", {"orders": ["item", "total"]}))
    ["the SQL names a column 'itm' that no source has; did you mean 'item'? possible are item, total"]
    """
    try:
        found = [each for each in sqlglot.parse(_WINDOW.sub("time_window", sql), dialect=DIALECT) if each is not None]
    except SqlglotError as error:
        raise Unreadable(
            f"the SQL cannot be parsed here ({_first_line(error)}); Spark may still accept it"
        ) from error
    if len(found) != 1 or not isinstance(found[0], exp.Query | exp.Values):
        yield "the SQL must be one query that begins with SELECT, WITH, FROM or VALUES"
        return
    query = found[0]
    unknown = list(_unknown_tables(query, tables))
    for name in unknown:
        yield f"the SQL names a table {name!r} that is none of the sources; {suggest(name, list(tables))}"
    columns = [column for known in tables.values() if known is not None for column in known]
    if not unknown and all(known is not None for known in tables.values()):
        for name in _unknown_columns(query, columns, tables):
            yield f"the SQL names a column {name!r} that no source has; {suggest(name, columns)}"


def _first_line(error: SqlglotError) -> str:
    details = getattr(error, "errors", [])
    if not details:
        return str(error).splitlines()[0]
    first = details[0]
    return f"{first['description']} at line {first['line']}, near {first['highlight']!r}"


def _unknown_tables(query: exp.Query | exp.Values, tables: Tables) -> Iterator[str]:
    defined = {each.alias_or_name.lower() for each in query.find_all(exp.CTE)}
    known = {name.lower() for name in tables} | defined
    seen: set[str] = set()
    for table in query.find_all(exp.Table):
        # Table functions and file paths are left to Spark.
        is_plain = isinstance(table.this, exp.Identifier) and not table.db
        if is_plain and table.name.lower() not in known | seen:
            seen.add(table.name.lower())
            yield table.name


def _unknown_columns(query: exp.Query | exp.Values, columns: Iterable[str], tables: Tables) -> Iterator[str]:
    """Yields column names of the query that no source has and the query does not define."""
    known = {name.lower() for name in (*columns, *tables)} | set(_names_given(query))
    seen: set[str] = set()
    for column in query.find_all(exp.Column):
        # The first part of `a.b.c` is a table, a struct column, or a name that the query defines.
        first = column.parts[0]
        name = first.name
        if isinstance(first, exp.Identifier) and name and name.lower() not in known | seen:
            seen.add(name.lower())
            yield name


def _names_given(query: exp.Query | exp.Values) -> Iterator[str]:
    """Yields all names that the query defines: columns, tables, CTEs, lambda parameters."""
    for node in query.walk():
        if isinstance(node, exp.Alias | exp.TableAlias | exp.CTE | exp.Subquery | exp.Table | exp.Lateral):
            yield node.alias_or_name.lower()
        if isinstance(node, exp.TableAlias):
            yield from (each.name.lower() for each in node.columns)
        elif isinstance(node, exp.Aliases):
            yield from (each.name.lower() for each in node.aliases)
        elif isinstance(node, exp.Lambda):
            yield from (each.name.lower() for each in node.expressions)
        elif isinstance(node, exp.Pivot | exp.Window):
            yield from (each.name.lower() for each in node.find_all(exp.Identifier))
    yield from ("window", "session_window", "value", "key", "pos", "col", "id")
