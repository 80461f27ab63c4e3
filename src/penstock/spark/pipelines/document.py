"""Pipeline files as they are written: values that know the line they stand in."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from penstock.foundation.errors import InvalidConfig

BYTES_MAX: Final = 1024 * 1024
"""A pipeline is read by people: a file that is larger is another one."""
_PREFIX: Final = "tag:yaml.org,2002:"


class Place(NamedTuple):
    """Where a value was written."""

    file: str
    line: int = 0
    """0 where there are no lines: an option of the command."""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Problem(NamedTuple):
    place: Place
    message: str
    is_certain: bool = True
    """Whether it cannot be run like that; else it is doubtful."""

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class PipelineInvalid(InvalidConfig):
    """A pipeline that cannot be run as it is written: everything that is wrong with it, in the order of its lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Final = tuple(sorted(problems, key=lambda problem: problem.place[1:]))
        super().__init__("; ".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Scalar:
    place: Place
    text: str
    kind: str
    """`str`, `int`, `float`, `bool`, `null`, as YAML understands what is not quoted."""


@dataclass(frozen=True, slots=True)
class Sequence:
    place: Place
    items: tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Table:
    place: Place
    entries: Mapping[str, "Value"]
    keys: Mapping[str, Place]
    """Where each key stands."""


Value = Scalar | Sequence | Table


def read_file(path: Path) -> Table:
    """The document of a file. PipelineInvalid says what is wrong, and in which line."""
    place = Place(str(path))
    try:
        size = path.stat().st_size
        if size > BYTES_MAX:
            raise PipelineInvalid([Problem(place, f"is {size} bytes large; a pipeline has at most {BYTES_MAX}")])
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PipelineInvalid([Problem(place, f"cannot be read: {reason}")]) from error
    return read_text(text, str(path))


def read_text(text: str, file: str) -> Table:
    """
    >>> read_text("name: totals", "totals.yaml").entries["name"].text
    'totals'
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise PipelineInvalid([Problem(place, f"is not YAML: {error.problem or error.context}")]) from error
    except yaml.YAMLError as error:
        raise PipelineInvalid([Problem(Place(file), f"is not YAML: {' '.join(str(error).split())}")]) from error
    except RecursionError as error:
        raise PipelineInvalid([Problem(Place(file), "is nested too deeply")]) from error
    if node is None:
        return Table(Place(file, 1, 1), {}, {})
    value = _convert(node, file)
    if not isinstance(value, Table):
        raise PipelineInvalid([Problem(value.place, "a pipeline is a mapping: `key: value` on each line")])
    return value


def _convert(node: yaml.Node, file: str) -> Value:
    place = Place(file, node.start_mark.line + 1, node.start_mark.column + 1)
    if isinstance(node, yaml.ScalarNode):
        return Scalar(place, node.value, node.tag.removeprefix(_PREFIX))
    if isinstance(node, yaml.SequenceNode):
        return Sequence(place, tuple(_convert(item, file) for item in node.value))
    entries: dict[str, Value] = {}
    keys: dict[str, Place] = {}
    for key, value in node.value:
        where = Place(file, key.start_mark.line + 1, key.start_mark.column + 1)
        if not isinstance(key, yaml.ScalarNode):
            raise PipelineInvalid([Problem(where, "a key is a plain word")])
        if key.value in entries:
            raise PipelineInvalid(
                [Problem(where, f"{key.value!r} is there twice; first in line {keys[key.value][1]}")]
            )
        entries[key.value] = _convert(value, file)
        keys[key.value] = where
    return Table(place, entries, keys)


def with_option(table: Table, path: str, text: str) -> Table:
    """The document with one value set from outside: `sink.topic=totals`.

    A text that begins with `[` or `{` is read as YAML, any other stands for itself.
    """
    place = Place(f"-o {path}")
    value: Value
    if text[:1] in "[{" and text:
        try:
            value = _convert(yaml.compose(text, Loader=yaml.SafeLoader), place.file)
        except (yaml.YAMLError, RecursionError) as error:
            raise PipelineInvalid([Problem(place, f"{text[:80]!r} is not YAML")]) from error
        value = _moved(value, place)
    else:
        tag = yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False))
        value = Scalar(place, text, tag.removeprefix(_PREFIX))
    return _set(table, path.split("."), value)


def _set(table: Table, names: list[str], value: Value) -> Table:
    first, *rest = names
    if rest:
        below = table.entries.get(first)
        value = _set(below if isinstance(below, Table) else Table(value.place, {}, {}), rest, value)
    keys = table.keys if first in table.keys else {**table.keys, first: value.place}
    return Table(table.place, {**table.entries, first: value}, keys)


def _moved(value: Value, place: Place) -> Value:
    """The value as if all of it stood at one place."""
    match value:
        case Scalar():
            return Scalar(place, value.text, value.kind)
        case Sequence():
            return Sequence(place, tuple(_moved(item, place) for item in value.items))
        case Table():
            entries = {key: _moved(entry, place) for key, entry in value.entries.items()}
            return Table(place, entries, dict.fromkeys(entries, place))


def possible(word: str, words: Iterable[str]) -> str:
    """What may have been meant, and what there is.

    >>> possible("topik", ["topic", "path"])
    "did you mean 'topic'? possible are path, topic"
    """
    known = sorted(words)
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}possible are {', '.join(known)}"
