"""Reads options of a .proto text: `name = value`, where the value may be a map or a list."""

from collections.abc import Iterable
from typing import Final

from penstock.schemas.formats.protobuf.elements import PRIMITIVE_KINDS, Kind, Option, Primitive, Value
from penstock.schemas.formats.protobuf.limits import NESTING_MAX
from penstock.schemas.formats.protobuf.reader import Reader

_NUMBER_STARTS: Final = frozenset("-0123456789")
_CONSTANT_KINDS: Final = {"true": Kind.BOOLEAN, "false": Kind.BOOLEAN}


def read_options(reader: Reader) -> tuple[Option, ...]:
    """Reads options in brackets, if there are any: `[deprecated = true, packed = false]`."""
    if not reader.take("["):
        return ()
    options = []
    while True:
        options.append(read_option(reader))
        if reader.take("]"):
            return tuple(options)
        reader.require(",")


def read_option(reader: Reader) -> Option:
    """Reads `name = value`. A path such as `(name).field.sub = 1` becomes options in options."""
    return _read_option(reader, "=", 0)


def _read_option(reader: Reader, separator: str, depth: int) -> Option:
    opening = reader.peek()
    name = reader.name()
    if opening == "[":
        name = f"[{name}]"
    path: list[tuple[str, bool]] = []
    while (found := reader.character()) == ".":
        path += _read_path(reader)
        _check_depth(reader, depth + len(path))
    if separator == ":" and found == "{":
        reader.at -= 1  # a map needs no separator
    elif found != separator:
        reader.fail(f"expected {separator!r} in an option, but found {found!r}", reader.at - 1)
    kind, value = _read_value(reader, depth + len(path))
    for each, is_custom in reversed(path):
        kind, value = Kind.OPTION, Option(each, kind, value, is_custom)
    return Option(name, kind, value, opening == "(")


def _read_path(reader: Reader) -> Iterable[tuple[str, bool]]:
    """Reads names after a dot; returns whether each is one of an extension."""
    opening = reader.peek()
    name = reader.name()
    if opening == "(":
        return [(name, True)]
    return [(each, False) for each in (f"[{name}]" if opening == "[" else name).split(".")]


def _read_value(reader: Reader, depth: int) -> tuple[Kind, Value]:
    start = reader.peek()
    if start in "\"'":
        return Kind.STRING, reader.string()
    if start == "{":
        return Kind.MAP, _read_map(reader, depth + 1)
    if start == "[":
        return Kind.LIST, _read_list(reader, depth + 1)
    word = reader.word()
    if start in _NUMBER_STARTS:
        return Kind.NUMBER, word
    return _CONSTANT_KINDS.get(word, Kind.ENUM), word


def _read_map(reader: Reader, depth: int) -> dict[str, Value]:
    _check_depth(reader, depth)
    reader.require("{")
    values: dict[str, Value] = {}
    while not reader.take("}"):
        name, kind, value, _ = _read_option(reader, ":", depth)
        if isinstance(value, Option):
            # As in Wire: a nested field replaces an earlier value of the same name.
            nested = values.get(name)
            if not isinstance(nested, dict):
                nested = values[name] = {}
            nested[value.name] = value.value
        else:
            _add(values, name, Primitive(kind, value) if kind in PRIMITIVE_KINDS else value)  # type: ignore[arg-type]
        if not reader.take(","):
            reader.take(";")
    return values


def _add(values: dict[str, Value], name: str, value: Value) -> None:
    """Adds a value; several values of the same name become a list."""
    if name not in values:
        values[name] = value
        return
    previous = values[name]
    if not isinstance(previous, list):
        previous = values[name] = [previous]
    if isinstance(value, list):
        previous.extend(value)
    else:
        previous.append(value)


def _read_list(reader: Reader, depth: int) -> list[Value]:
    _check_depth(reader, depth)
    reader.require("[")
    values: list[Value] = []
    while not reader.take("]"):
        kind, value = _read_value(reader, depth)
        values.append(Primitive(kind, value) if kind in PRIMITIVE_KINDS else value)  # type: ignore[arg-type]
        if not reader.take(",") and reader.peek() != "]":
            reader.fail(f"expected ',' or ']' in a list, but found {reader.peek()!r}")
    return values


def _check_depth(reader: Reader, depth: int) -> None:
    if depth > NESTING_MAX:
        reader.fail(f"the value of an option is nested more than {NESTING_MAX} levels deep")
