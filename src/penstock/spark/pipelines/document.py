"""Parses pipeline files (YAML) into values that have a location: file, line and column."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from penstock.foundation.errors import InvalidConfig

BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a pipeline file in bytes; larger files are rejected before they are parsed."""
_PREFIX: Final = "tag:yaml.org,2002:"


class Location(NamedTuple):
    """The location of a value: file, line and column, or an option of the command line."""

    file: str
    line: int = 0
    """Line number in the file; 0 for an option of the command line."""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Problem(NamedTuple):
    location: Location
    message: str
    is_certain: bool = True
    """Whether the problem is an error; otherwise it is a warning."""

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


class PipelineInvalid(InvalidConfig):
    """A pipeline has invalid options. The error contains all problems, sorted by line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Final = tuple(sorted(problems, key=lambda problem: problem.location[1:]))
        super().__init__("; ".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Scalar:
    location: Location
    text: str
    kind: str
    """Type of the value: `str`, `int`, `float`, `bool` or `null`, as YAML resolves plain scalars."""


@dataclass(frozen=True, slots=True)
class Sequence:
    location: Location
    items: tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Table:
    location: Location
    entries: Mapping[str, "Value"]
    keys: Mapping[str, Location]
    """Location of each key of this YAML mapping: file, line and column, or the command-line option that added it."""


Value = Scalar | Sequence | Table


def read_file(path: Path) -> Table:
    """Parses a pipeline file. Raises PipelineInvalid, with the line, if the file is not valid."""
    location = Location(str(path))
    try:
        size = path.stat().st_size
        if size > BYTES_MAX:
            raise PipelineInvalid([Problem(location, f"has {size} bytes; the maximum is {BYTES_MAX}")])
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PipelineInvalid([Problem(location, f"cannot be read: {reason}")]) from error
    return read_text(text, str(path))


def read_text(text: str, file: str) -> Table:
    """Parses the YAML text of a pipeline. `file` is the file name for the locations of values.

    >>> read_text("name: totals", "totals.yaml").entries["name"].text
    'totals'
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = Location(file, mark.line + 1, mark.column + 1) if mark else Location(file)
        raise PipelineInvalid([Problem(location, f"is not YAML: {error.problem or error.context}")]) from error
    except yaml.YAMLError as error:
        raise PipelineInvalid([Problem(Location(file), f"is not YAML: {' '.join(str(error).split())}")]) from error
    except RecursionError as error:
        raise PipelineInvalid([Problem(Location(file), "is nested too deeply")]) from error
    if node is None:
        return Table(Location(file, 1, 1), {}, {})
    value = _convert(node, file)
    if not isinstance(value, Table):
        raise PipelineInvalid([Problem(value.location, "a pipeline must be a mapping: `key: value` on each line")])
    return value


def _convert(node: yaml.Node, file: str) -> Value:
    location = Location(file, node.start_mark.line + 1, node.start_mark.column + 1)
    if isinstance(node, yaml.ScalarNode):
        return Scalar(location, node.value, node.tag.removeprefix(_PREFIX))
    if isinstance(node, yaml.SequenceNode):
        return Sequence(location, tuple(_convert(item, file) for item in node.value))
    entries: dict[str, Value] = {}
    keys: dict[str, Location] = {}
    for key, value in node.value:
        where = Location(file, key.start_mark.line + 1, key.start_mark.column + 1)
        if not isinstance(key, yaml.ScalarNode):
            raise PipelineInvalid([Problem(where, "a key must be a plain scalar")])
        if key.value in entries:
            raise PipelineInvalid([Problem(where, f"{key.value!r} is set twice; first in line {keys[key.value][1]}")])
        entries[key.value] = _convert(value, file)
        keys[key.value] = where
    return Table(location, entries, keys)


def with_option(table: Table, path: str, text: str) -> Table:
    """Returns a copy of the table in which the value at `path`, such as `sink.topic`, is set to `text`.

    A text that begins with `[` or `{` is parsed as YAML.
    """
    location = Location(f"-o {path}")
    value: Value
    if text[:1] in "[{" and text:
        try:
            value = _convert(yaml.compose(text, Loader=yaml.SafeLoader), location.file)
        except (yaml.YAMLError, RecursionError) as error:
            raise PipelineInvalid([Problem(location, f"{text[:80]!r} is not YAML")]) from error
        value = _moved(value, location)
    else:
        tag = yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False))
        value = Scalar(location, text, tag.removeprefix(_PREFIX))
    return _set(table, path.split("."), value)


def _set(table: Table, names: list[str], value: Value) -> Table:
    first, *rest = names
    if rest:
        below = table.entries.get(first)
        value = _set(below if isinstance(below, Table) else Table(value.location, {}, {}), rest, value)
    keys = table.keys if first in table.keys else {**table.keys, first: value.location}
    return Table(table.location, {**table.entries, first: value}, keys)


def _moved(value: Value, location: Location) -> Value:
    """Returns a copy of the value in which it and all values inside it have this location."""
    match value:
        case Scalar():
            return Scalar(location, value.text, value.kind)
        case Sequence():
            return Sequence(location, tuple(_moved(item, location) for item in value.items))
        case Table():
            entries = {key: _moved(entry, location) for key, entry in value.entries.items()}
            return Table(location, entries, dict.fromkeys(entries, location))


def suggest(word: str, words: Iterable[str]) -> str:
    """Returns advice for an unknown word: the closest of `words`, and the list of them.

    >>> suggest("topik", ["topic", "path"])
    "did you mean 'topic'? possible are path, topic"
    """
    known = sorted(words)
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}possible are {', '.join(known)}"
