"""Pipeline options as annotated dataclasses, and the readers that parse and check their values.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Sink:
        topic: str | None = option(text, "The topic to write to", default=None)

All problems are reported together, each with its line.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.client.schema_registry_urls import parse_urls
from penstock.client.security import CLIENT_PROPERTIES
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.properties import read_properties
from penstock.spark.connect import is_connect, without_token
from penstock.spark.pipelines.brokers import Brokers
from penstock.spark.pipelines.document import (
    Location,
    PipelineInvalid,
    Problem,
    Scalar,
    Sequence,
    Table,
    Value,
    suggest,
)

T = TypeVar("T")
Reader = Callable[[Value, str, list[Problem]], Any]
"""A function that parses a value. Arguments: the value, its dotted option name, and a list to append problems to."""

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?|d|days?)")
_SECONDS: Final = {"ms": 0.001, "mi": 0.001, "s": 1, "se": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB)?")
_BYTES: Final = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_COLUMN: Final = re.compile(r"\s*(`[^`]+`|\w+)\s*:?\s+[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Locations:
    """Where each option was set (file, line and column, or the command line), by option name, for error messages."""

    keys: Mapping[str, Location]
    table: Location

    def of(self, key: str) -> Location:
        return self.keys.get(key, self.table)


def option(reader: Reader, doc: str, *, default: Any = MISSING, metavar: str | None = None) -> Any:
    """Declares an option as a dataclass field. `reader` parses its value. Without a default, it is required."""
    metadata = {"reader": reader, "doc": doc, "metavar": metavar or getattr(reader, "metavar", "TEXT")}
    if default is MISSING:
        return field(metadata=metadata)
    if isinstance(default, dict | list):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def locations() -> Any:
    """Returns the dataclass field that holds the file and line where each option was set, for error messages."""
    return field(default=Locations({}, Location("")), repr=False, compare=False)


def options_of(kind: type[Any]) -> list[Field[Any]]:
    """Returns the fields of an options class that users can set."""
    return [each for each in fields(kind) if "reader" in each.metadata]


def read(kind: type[T], table: Table, extra: tuple[str, ...] = ()) -> T:
    """Parses `table` into an instance of `kind`; ignores `extra` keys. Raises PipelineInvalid with all problems."""
    problems: list[Problem] = []
    made = _read_into(kind, table, "", problems, extra)
    if problems or made is None:
        raise PipelineInvalid(problems)
    return made


def _read_into(kind: type[T], table: Table, path: str, problems: list[Problem], extra: tuple[str, ...]) -> T | None:
    known = {each.name: each for each in options_of(kind)}
    before = len(problems)
    for key, location in table.keys.items():
        if key not in known and key not in extra:
            where = f" in {path}" if path else ""
            problems.append(Problem(location, f"there is no {key!r}{where}; {suggest(key, known)}"))
    values: dict[str, Any] = {}
    for name, each in known.items():
        value = table.entries.get(name)
        if value is None or (isinstance(value, Scalar) and value.kind == "null"):
            if each.default is MISSING and each.default_factory is MISSING:
                label = f"{path}.{name}" if path else name
                problems.append(Problem(table.location, f"{label!r} is missing: {each.metadata['doc']}"))
            continue
        values[name] = each.metadata["reader"](value, f"{path}.{name}" if path else name, problems)
    if len(problems) > before:
        return None
    if any(each.name == "locations" for each in fields(kind)):  # type: ignore[arg-type]
        values["locations"] = Locations(table.keys, table.location)
    return kind(**values)


# -- readers


def _reader(metavar: str) -> Callable[[Callable[[Value], Any]], Reader]:
    """Returns a decorator that turns a parser of one value into a Reader; a ValueError becomes a Problem."""

    def wrap(parse: Callable[[Value], Any]) -> Reader:
        def read_one(value: Value, path: str, problems: list[Problem]) -> Any:
            try:
                return parse(value)
            except ValueError as error:
                problems.append(Problem(value.location, f"{path}: {error}"))
                return None

        read_one.metavar = metavar  # type: ignore[attr-defined]
        return read_one

    return wrap


def _scalar(value: Value, wanted: str) -> Scalar:
    if not isinstance(value, Scalar):
        found = "a list" if isinstance(value, Sequence) else "a mapping"
        raise ValueError(f"{wanted} is expected, not {found}")
    return value


@_reader("TEXT")
def text(value: Value) -> str:
    found = _scalar(value, "a string").text.strip()
    if not found:
        raise ValueError("is empty")
    return found


@_reader("true|false")
def flag(value: Value) -> bool:
    found = _scalar(value, "true or false")
    if found.kind != "bool":
        raise ValueError(f"{found.text!r} is not true or false")
    return found.text.lower() in ("true", "yes", "on")


def number(minimum: int = 0, maximum: int | None = None) -> Reader:
    @_reader("NUMBER")
    def parse(value: Value) -> int:
        found = _scalar(value, "a whole number")
        digits = found.text.replace("_", "")
        if not digits.isdecimal():
            raise ValueError(f"{found.text!r} is not a whole number")
        if int(digits) < minimum or (maximum is not None and int(digits) > maximum):
            bounds = f"at least {minimum}" if maximum is None else f"between {minimum} and {maximum}"
            raise ValueError(f"{digits} is not {bounds}")
        return int(digits)

    return parse


def choice(*words: str) -> Reader:
    @_reader("|".join(words))
    def parse(value: Value) -> str:
        found = _scalar(value, "one of " + ", ".join(words)).text
        if found not in words:
            raise ValueError(f"{found!r} is not known; {suggest(found, words)}")
        return found

    return parse


@_reader("sc://HOST:PORT")
def connect_server(value: Value) -> str:
    """Parses the address of a Spark Connect server."""
    found = _scalar(value, "an address").text.strip()
    if not is_connect(found):
        raise ValueError(f"{without_token(found)!r} is not the address of a Spark Connect server: sc://HOST:PORT")
    return found


@_reader("DURATION")
def duration(value: Value) -> float:
    """Parses a duration such as `500 ms`, `10 seconds` or `2 h` into seconds."""
    found = _scalar(value, "a duration").text.strip()
    match = _DURATION.fullmatch(found)
    if match is None:
        raise ValueError(f"{found!r} is not a duration; write for example 500 ms, 10 seconds, 5 min, 2 h")
    unit = match[2]
    factor = _SECONDS.get(unit) or _SECONDS.get(unit[:3]) or _SECONDS.get(unit[:2]) or _SECONDS[unit[0]]
    return float(match[1]) * factor


@_reader("SIZE")
def size(value: Value) -> int:
    """Parses a size such as `128 MiB` into bytes."""
    found = _scalar(value, "a size").text.strip()
    match = _SIZE.fullmatch(found)
    if match is None:
        raise ValueError(f"{found!r} is not a size; write for example 64 KiB, 128 MiB")
    return int(float(match[1]) * _BYTES[match[2] or "B"])


@_reader("TIME")
def moment(value: Value) -> int:
    """Parses a time such as `2026-01-31T12:00:00Z` or `@1767225600000` into milliseconds since 1970."""
    found = _scalar(value, "a time").text.strip()
    forms = "write 2026-01-31T12:00:00Z or @1767225600000 (ms since 1970)"
    if found.startswith("@") and found[1:].isdecimal():
        return int(found[1:])
    try:
        when = datetime.fromisoformat(found)
    except ValueError:
        raise ValueError(f"{found!r} is not a time; {forms}") from None
    if when.tzinfo is None:
        raise ValueError(f"{found!r} has no time zone; {forms}")
    return round((when - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _split_names(value: Value, what: str) -> list[str]:
    if isinstance(value, Sequence):
        found = [_scalar(item, what).text.strip() for item in value.items]
    else:
        found = [part.strip() for part in _scalar(value, f"{what}, or a list of them").text.split(",")]
    if not found or not all(found):
        raise ValueError("contains an empty name")
    return list(dict.fromkeys(found))


@_reader("NAME[,…]")
def names(value: Value) -> tuple[str, ...]:
    return tuple(_split_names(value, "a name"))


@_reader("TOPIC[,…]")
def topics(value: Value) -> tuple[str, ...]:
    found = _split_names(value, "a topic")
    for topic in found:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise ValueError(f"{topic!r} is not a topic name; use letters, digits, '.', '_' and '-'")
    return tuple(found)


@_reader("TOPIC")
def topic(value: Value) -> str:
    found = _scalar(value, "a topic").text.strip()
    if not _TOPIC.fullmatch(found) or found in (".", ".."):
        raise ValueError(f"{found!r} is not a topic name; use letters, digits, '.', '_' and '-'")
    return found


@_reader("HOST:PORT[,…]")
def bootstrap(value: Value) -> Brokers:
    """Reads the addresses of brokers or, for TLS and logins, a mapping of `servers` and Kafka client properties; with
    `client`, those of a properties file, to which the data source gets references."""
    if not isinstance(value, Table):
        return Brokers.of(_scalar(value, "HOST:PORT, or a mapping with servers").text)
    given = pairs_in(value)
    servers = given.pop("servers", None)
    if servers is None:
        raise ValueError("servers is missing: HOST:PORT of a broker")
    file = given.pop("client", None)
    if file is not None:
        path = Path(file).absolute()
        try:
            of_file = read_properties(path)
        except InvalidConfig as error:
            raise ValueError(str(error)) from None
        given = {
            name: _referred(path, name, text) for name, text in of_file.items() if name in CLIENT_PROPERTIES
        } | given
    return Brokers.of(servers, given)


def _referred(file: Path, name: str, text: str) -> str:
    """Returns a reference to a property of a file, unless its value is a reference already."""
    return text if "${" in text else f"${{file:{file}:{name}}}"


@_reader("URL[,…]")
def registry_urls(value: Value) -> str:
    """Checks the URLs of a schema registry and returns them as text."""
    found = _scalar(value, "a URL").text.strip()
    parse_urls(found)
    return found


@_reader("NAME: TEXT, …")
def pairs(value: Value) -> dict[str, str]:
    """Parses a mapping of names to strings."""
    if not isinstance(value, Table):
        raise ValueError("a mapping is expected: `name: value` on each line")
    return pairs_in(value)


def pairs_in(value: Table) -> dict[str, str]:
    return {key: _scalar(entry, f"{key}: a string").text for key, entry in value.entries.items()}


@_reader("COLUMN TYPE, …")
def schema(value: Value) -> str:
    """Checks a schema and returns it as text: columns in Spark's DDL syntax, or the word `infer`."""
    found = _scalar(value, "columns with their types").text.strip()
    if found != "infer":
        columns_of(found)
    return found


def columns_of(ddl: str) -> list[str]:
    """Returns the names of the top-level columns of a schema in Spark's DDL syntax.

    >>> columns_of("id BIGINT, at TIMESTAMP, item STRUCT<name: STRING, size: INT>")
    ['id', 'at', 'item']
    """
    parts, depth, begin, quote = [], 0, 0, ""
    for position, letter in enumerate(ddl):
        if letter == quote or (not quote and letter in "'\"`"):
            quote = "" if quote else letter
        if quote:
            continue
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(ddl[begin:position])
            begin = position + 1
    found = []
    for part in [*parts, ddl[begin:]]:
        match = _COLUMN.match(part)
        if match is None:
            raise ValueError(f"{part.strip()!r} is not a column with its type, as in `id BIGINT`")
        found.append(match[1].strip("`"))
    if len({name.lower() for name in found}) < len(found):
        raise ValueError("names a column twice")
    return found


def nested(kind: type[Any]) -> Reader:
    """Returns a Reader that parses a mapping into an instance of the options class `kind`."""

    def parse(value: Value, path: str, problems: list[Problem]) -> Any:
        if not isinstance(value, Table):
            expected = ", ".join(each.name for each in options_of(kind))
            problems.append(Problem(value.location, f"{path}: a mapping is expected, with {expected}"))
            return None
        return _read_into(kind, value, path, problems, ())

    parse.metavar = "{…}"  # type: ignore[attr-defined]
    parse.kind = kind  # type: ignore[attr-defined]
    return parse


def named(kind: type[Any]) -> Reader:
    """Returns a Reader for a mapping of mappings: each inner mapping becomes an instance of `kind`, by name."""
    one = nested(kind)

    def parse(value: Value, path: str, problems: list[Problem]) -> Any:
        if not isinstance(value, Table) or not value.entries:
            problems.append(
                Problem(value.location, f"{path}: names are expected, each with its own options below it")
            )
            return None
        found = {}
        for name, entry in value.entries.items():
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                message = f"{path}: {name!r} cannot be the name of a table; use letters, digits and '_'"
                problems.append(Problem(value.keys[name], message))
            found[name] = one(entry, f"{path}.{name}", problems)
        return found

    parse.metavar = "NAME: {…}"  # type: ignore[attr-defined]
    parse.kind = kind  # type: ignore[attr-defined]
    return parse
