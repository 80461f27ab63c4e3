"""Merges options of the same name: each may set some fields of it, as in `(meta).doc = "a"` and `(meta).tags = "b"`.

Linear in the size of all, unlike in Confluent's registry.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from penstock.schemas.formats.protobuf.elements import PRIMITIVE_KINDS, Field, Kind, Option, Primitive, Value
from penstock.schemas.formats.protobuf.java_text import identity

Lookup: TypeAlias = Callable[[Field, str], Field | None]
"""Returns the field of a message type by name; None if the field is no message, or the type is unknown."""
IsMessage: TypeAlias = Callable[[Field], bool]


def to_map(option: Option) -> Option:
    """Returns an option with a path as a map: `(a).b.c = 1` becomes `(a) = {b: {c: 1}}`."""
    if option.kind is not Kind.OPTION:
        return option
    value = option.value
    path = [option.name]
    kind: Kind = option.kind
    while isinstance(value, Option):
        path.append(value.name)
        kind, value = value.kind, value.value
    if kind in PRIMITIVE_KINDS:
        assert isinstance(value, str)
        value = Primitive(kind, value)
    for name in reversed(path[1:]):
        value = {name: value}
    return Option(option.name, Kind.MAP, value, option.is_custom)


def merge_by_name(options: Iterable[Option]) -> dict[str, Option]:
    """Merges options by name, without types: several values of a field become a list without duplicates."""
    merged: dict[str, OptionMerger] = {}
    for option in options:
        name = option.name.removeprefix(".")
        if name not in merged:
            merged[name] = OptionMerger(to_map(option))
        else:
            merged[name].add(to_map(option))
    return {name: each.result() for name, each in merged.items()}


class OptionMerger:
    """An option and those merged into it."""

    def __init__(
        self,
        first: Option,
        field: Field | None = None,
        lookup: Lookup | None = None,
        is_message: IsMessage | None = None,
    ) -> None:
        self._last = first
        self._field = field
        self._lookup = lookup
        self._is_message = is_message
        self._values: _Values | None = None

    def add(self, option: Option) -> None:
        """Merges maps. Any other value replaces what there was."""
        if not isinstance(self._last.value, dict) or not isinstance(option.value, dict):
            self._values = None
        else:
            if self._values is None:
                self._values = _Values(self._last.value, self._field, self._lookup, self._is_message)
            self._values.add(option.value)
        self._last = option

    def result(self) -> Option:
        if self._values is None:
            return self._last
        return self._last._replace(value=self._values.result())


class _Values:
    """The fields of a merged option, or of a message in it."""

    def __init__(
        self,
        first: dict[str, Value],
        field: Field | None,
        lookup: Lookup | None,
        is_message: IsMessage | None,
    ) -> None:
        self._fields: dict[str, Value | _Values | _Repeated] = {**first}
        self._field = field
        self._lookup = lookup
        self._is_message = is_message

    def add(self, values: dict[str, Value]) -> None:
        for name, value in values.items():
            if name not in self._fields:
                self._fields[name] = value
            else:
                self._combine(name, value)

    def result(self) -> dict[str, Value]:
        return {
            name: each.result() if isinstance(each, _Values | _Repeated) else each
            for name, each in self._fields.items()
        }

    def _combine(self, name: str, value: Value) -> None:
        old = self._fields[name]
        field = self._lookup(self._field, name) if self._lookup is not None and self._field is not None else None
        if field is not None and field.label != "repeated":
            if isinstance(value, dict) and self._is_message is not None and self._is_message(field):
                if isinstance(old, dict):
                    old = self._fields[name] = _Values(old, field, self._lookup, self._is_message)
                if isinstance(old, _Values):
                    old.add(value)
                    return
            self._fields[name] = value
            return
        if not isinstance(old, _Repeated):
            assert not isinstance(old, _Values)
            old = self._fields[name] = _Repeated(old)
        old.add(value)


class _Repeated:
    """Values without duplicates, in order."""

    def __init__(self, first: Value) -> None:
        self._values: dict[Hashable, Value] = {}
        self.add(first)

    def add(self, value: Value) -> None:
        for each in value if isinstance(value, list) else [value]:
            self._values.setdefault(identity(each), each)

    def result(self) -> list[Value]:
        return list(self._values.values())
