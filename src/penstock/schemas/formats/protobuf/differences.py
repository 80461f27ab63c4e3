"""Finds out why data written with one version of a schema cannot be read with another, as Confluent's registry does.

Fields are compared by number. Types of the schema itself are compared by name; those of other files as well, if any
file that they depend on has changed. Groups are not compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.schemas.formats.format import READER, WRITER, Difference
from penstock.schemas.formats.protobuf.elements import REQUIRED, EnumType, Field, Message, Type
from penstock.schemas.formats.protobuf.errors import invalid
from penstock.schemas.formats.protobuf.limits import COMPARISONS_MAX, DIFFERENCES_MAX
from penstock.schemas.formats.protobuf.map_types import SCALARS, MapType
from penstock.schemas.formats.protobuf.type_names import Node, Scope, TypeInfo, TypeNames

PACKAGE_CHANGED: Final = "PACKAGE_CHANGED"
MESSAGE_REMOVED: Final = "MESSAGE_REMOVED"
FIELD_KIND_CHANGED: Final = "FIELD_KIND_CHANGED"
FIELD_SCALAR_KIND_CHANGED: Final = "FIELD_SCALAR_KIND_CHANGED"
FIELD_NAMED_TYPE_CHANGED: Final = "FIELD_NAMED_TYPE_CHANGED"
FIELD_NUMERIC_LABEL_CHANGED: Final = "FIELD_NUMERIC_LABEL_CHANGED"
REQUIRED_FIELD_ADDED: Final = "REQUIRED_FIELD_ADDED"
REQUIRED_FIELD_REMOVED: Final = "REQUIRED_FIELD_REMOVED"
ONEOF_FIELD_REMOVED: Final = "ONEOF_FIELD_REMOVED"
MULTIPLE_FIELDS_MOVED_TO_ONEOF: Final = "MULTIPLE_FIELDS_MOVED_TO_ONEOF"
FIELD_MOVED_TO_EXISTING_ONEOF: Final = "FIELD_MOVED_TO_EXISTING_ONEOF"

_DESCRIPTIONS: Final = {
    PACKAGE_CHANGED: "The package at '{path}' in the {reader} schema does not match the package in the {writer} "
    "schema",
    MESSAGE_REMOVED: "The {reader} schema is missing a MESSAGE type at path '{path}' in the {writer} schema",
    FIELD_KIND_CHANGED: "The type of a field at path '{path}' in the {reader} schema does not match the {writer} "
    "schema",
    FIELD_SCALAR_KIND_CHANGED: "The kind of a SCALAR field at path '{path}' in the {reader} schema does not match "
    "its kind in the {writer} schema",
    FIELD_NAMED_TYPE_CHANGED: "The type of a MESSAGE field at path '{path}' in the {reader} schema does not match "
    "its type in the {writer} schema",
    FIELD_NUMERIC_LABEL_CHANGED: "The label for a NUMERIC field at path '{path}' in the {reader} schema does not "
    "match its label in the {writer} schema",
    REQUIRED_FIELD_ADDED: "A required field  at path '{path}' in the {reader} schema is missing in the {writer} "
    "schema",
    REQUIRED_FIELD_REMOVED: "The {reader} schema is missing a required field at path: '{path}' in the {writer} "
    "schema",
    ONEOF_FIELD_REMOVED: "The {reader} schema is missing a oneof field at path '{path}' in the {writer} schema",
    MULTIPLE_FIELDS_MOVED_TO_ONEOF: "Multiple fields in the oneof at path '{path}' in the {reader} schema are "
    "outside a oneof in the {writer} schema",
    FIELD_MOVED_TO_EXISTING_ONEOF: "A field in the oneof at path '{path}' in the {reader} schema is outside an "
    "existing oneof in the {writer} schema",
}
"""With the layout of Confluent's registry, which clients show to people."""

_PATH_LENGTH_MAX: Final = 1000
"""Maximum characters of a path that is shown: a schema may have many differences in messages with very long names."""
_GENERAL_NUMBER: Final = "general number"
_STRING_OR_BYTES: Final = "string or bytes"
_SCALAR_KINDS: Final = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), _GENERAL_NUMBER),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("string", "bytes"), _STRING_OR_BYTES),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}
"""Scalar types that can be read as each other. An enum is a general number."""


class Side(NamedTuple):
    """One of the two schemas that are compared."""

    names: TypeNames
    types: Sequence[Type]
    package: str | None


class _Pair(NamedTuple):
    """Two types of the same name, of which at least one is in another file."""

    writer: TypeInfo
    reader: TypeInfo
    path: str
    """The path of the field that has them."""

    @property
    def key(self) -> tuple[int, int]:
        return id(self.writer), id(self.reader)


_Found = Difference | _Pair


def find_differences(writer: Side, reader: Side, unchanged_files: frozenset[str]) -> list[Difference]:
    """Returns at most DIFFERENCES_MAX reasons, each once. Raises InvalidSchema if there is too much to compare.

    `unchanged_files`: names of files that are the same on both sides, with all files that they depend on.
    """
    budget = _Budget()
    root = _Comparison(
        writer.names.scope(), reader.names.scope(), unchanged_files=unchanged_files, budget=budget, path=[]
    )
    if (writer.package or None) != (reader.package or None):
        root.add(PACKAGE_CHANGED)
    root.types(writer.types, reader.types)
    found_by_pair: dict[tuple[int, int], list[_Found]] = {}
    pending = [each for each in root.found if isinstance(each, _Pair)]
    while pending:
        pair = pending.pop()
        if pair.key not in found_by_pair:
            found = found_by_pair[pair.key] = _compare_pair(pair, writer, reader, unchanged_files, budget)
            pending += (each for each in found if isinstance(each, _Pair))
    return _flatten(root.found, found_by_pair, _incompatible(found_by_pair))


class _Budget:
    """Counts compared fields: types that refer to each other in many files have many pairs."""

    def __init__(self) -> None:
        self._left = COMPARISONS_MAX

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise invalid(f"cannot compare the schemas: they have over {COMPARISONS_MAX} pairs of fields")


def _compare_pair(
    pair: _Pair, writer: Side, reader: Side, unchanged_files: frozenset[str], budget: _Budget
) -> list[_Found]:
    scopes = writer.names.scope(pair.writer.package), reader.names.scope(pair.reader.package)
    path = pair.writer.local_name.split(".")
    for name in path:
        for scope in scopes:
            scope.enter(name)
    comparison = _Comparison(*scopes, unchanged_files=unchanged_files, budget=budget, path=path)
    assert isinstance(pair.writer.type, Message)
    assert isinstance(pair.reader.type, Message)
    comparison.messages(pair.writer.type, pair.reader.type)
    return comparison.found


def _incompatible(found_by_pair: Mapping[tuple[int, int], Sequence[_Found]]) -> set[tuple[int, int]]:
    """Returns the pairs with a difference in themselves, or in a type that they have a field of."""
    users: dict[tuple[int, int], list[tuple[int, int]]] = {}
    incompatible = set()
    for key, found in found_by_pair.items():
        for each in found:
            if isinstance(each, _Pair):
                users.setdefault(each.key, []).append(key)
            else:
                incompatible.add(key)
    pending = list(incompatible)
    while pending:
        for user in users.get(pending.pop(), ()):
            if user not in incompatible:
                incompatible.add(user)
                pending.append(user)
    return incompatible


def _flatten(
    root: Sequence[_Found],
    found_by_pair: Mapping[tuple[int, int], Sequence[_Found]],
    incompatible: set[tuple[int, int]],
) -> list[Difference]:
    """Returns all differences: those in the type of a field come before the difference of the field."""
    differences: dict[Difference, None] = {}
    shown: set[tuple[int, int]] = set()
    stack: list[tuple[_Pair | None, Iterator[_Found]]] = [(None, iter(root))]
    while stack and len(differences) < DIFFERENCES_MAX:
        pair, rest = stack[-1]
        each = next(rest, None)
        if isinstance(each, Difference):
            differences[each] = None
        elif each is not None:
            if each.key in incompatible:
                stack.append((each, iter(() if each.key in shown else found_by_pair[each.key])))
                shown.add(each.key)
        else:
            stack.pop()
            if pair is not None:
                differences[_difference(FIELD_NAMED_TYPE_CHANGED, pair.path)] = None
    return list(differences)


def _difference(kind: str, path: str) -> Difference:
    description = _DESCRIPTIONS[kind].format(path=path, reader=READER, writer=WRITER)
    return Difference(kind, f'{{errorType:"{kind}", description:"{description}"}}')


class _Comparison:
    """Compares the types in one scope."""

    def __init__(
        self, writer: Scope, reader: Scope, *, unchanged_files: frozenset[str], budget: _Budget, path: list[str]
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._unchanged_files = unchanged_files
        self._budget = budget
        self._path = path
        self.found: list[_Found] = []

    def add(self, kind: str, *path: str) -> None:
        self.found.append(_difference(kind, self._full_path(*path)))

    def _full_path(self, *path: str) -> str:
        text = "#/" + "/".join((*self._path, *path))
        return text if len(text) <= _PATH_LENGTH_MAX else f"{text[:_PATH_LENGTH_MAX]}..."

    def types(self, writer: Sequence[Type], reader: Sequence[Type]) -> None:
        """Compares messages by name; enums are always compatible."""
        kept = {each.name: each for each in reader if isinstance(each, Message)}
        for name, message in {each.name: each for each in writer if isinstance(each, Message)}.items():
            self._path.append(name)
            self._writer.enter(name)
            self._reader.enter(name)
            if name in kept:
                self.messages(message, kept[name])
            else:
                found = self._writer.type(name)
                if found is not None and not found[1].is_map:
                    self.add(MESSAGE_REMOVED)
            self._reader.leave()
            self._writer.leave()
            self._path.pop()

    def messages(self, writer: Message, reader: Message) -> None:
        old, new = _Fields(writer), _Fields(reader)
        self._one_ofs(old, new, reader)
        deleted = {
            each.name
            for each in writer.one_ofs
            if each.name not in new.one_ofs and new.by_number.keys().isdisjoint(field.tag for field in each.fields)
        }
        for number in sorted(old.by_number.keys() | new.by_number.keys()):
            self._budget.spend()
            old_field, new_field = old.by_number.get(number), new.by_number.get(number)
            old_one_of, new_one_of = old.one_of.get(number), new.one_of.get(number)
            if old_field is None:
                assert new_field is not None
                if new_one_of is None and new_field.label == REQUIRED:
                    self.add(REQUIRED_FIELD_ADDED, str(number))
            elif new_field is None:
                if old_one_of is None:
                    if old_field.label == REQUIRED:
                        self.add(REQUIRED_FIELD_REMOVED, str(number))
                elif old_one_of not in deleted:
                    self.add(ONEOF_FIELD_REMOVED, old_one_of, str(number))
            else:
                path = (str(number),) if new_one_of is None else (new_one_of, str(number))
                self._types_of_fields(old_field.type, new_field.type, path, (old_field.label, new_field.label))
        self.types(writer.nested, reader.nested)

    def _one_ofs(self, old: "_Fields", new: "_Fields", reader: Message) -> None:
        """Finds fields that could be set together before, and cannot now."""
        for one_of in reader.one_ofs:
            origins: set[str | int] = set()
            moved_in = 0
            for field in one_of.fields:
                if field.tag in old.one_of:
                    origins.add(old.one_of[field.tag])
                elif field.tag in old.by_number:
                    origins.add(field.tag)
                    moved_in += 1
            if len(origins) > 1:
                kind = MULTIPLE_FIELDS_MOVED_TO_ONEOF if moved_in > 1 else FIELD_MOVED_TO_EXISTING_ONEOF
                self.add(kind, one_of.name)

    def _types_of_fields(
        self, writer: str, reader: str, path: tuple[str, ...], labels: tuple[str | None, str | None]
    ) -> None:
        old, new = _FieldType(writer, self._writer), _FieldType(reader, self._reader)
        if old.kind != new.kind:
            self.add(FIELD_KIND_CHANGED, *path)
        elif old.map_type is not None and new.map_type is not None:
            self._types_of_fields(old.map_type.key, new.map_type.key, path, (None, None))
            self._types_of_fields(old.map_type.value, new.map_type.value, path, (None, None))
        elif old.scalar is not None:
            self._scalars(old.scalar, new.scalar, path, labels)
        else:
            self._named_types(old, new, path)

    def _scalars(
        self, writer: str, reader: str | None, path: tuple[str, ...], labels: tuple[str | None, str | None]
    ) -> None:
        if writer != reader:
            self.add(FIELD_SCALAR_KIND_CHANGED, *path)
        elif None not in labels and labels[0] != labels[1] and writer != _STRING_OR_BYTES:
            self.add(FIELD_NUMERIC_LABEL_CHANGED, *path)

    def _named_types(self, old: "_FieldType", new: "_FieldType", path: tuple[str, ...]) -> None:
        if old.info is None or new.info is None:
            if old.name != new.name:
                self.add(FIELD_NAMED_TYPE_CHANGED, *path)
        elif old.info.local_name != new.info.local_name:
            self.add(FIELD_NAMED_TYPE_CHANGED, *path)
        elif old.info.file != new.info.file or not (old.info.file is None or old.info.file in self._unchanged_files):
            self.found.append(_Pair(old.info, new.info, self._full_path(*path)))


class _Fields:
    """The fields of a message by number, those in oneofs included."""

    def __init__(self, message: Message) -> None:
        self.by_number: dict[int, Field] = {field.tag: field for field in message.fields}
        self.one_of: dict[int, str] = {}
        self.one_ofs = {each.name for each in message.one_ofs}
        for one_of in message.one_ofs:
            for field in one_of.fields:
                self.by_number[field.tag] = field
                self.one_of[field.tag] = one_of.name


class _FieldType:
    """What the type of a field means in its scope."""

    __slots__ = ("info", "kind", "map_type", "name", "scalar")

    def __init__(self, name: str, scope: Scope) -> None:
        self.name = name
        self.map_type = MapType.parse(name)
        found: tuple[Node, TypeInfo] | None = scope.type(name)
        self.info = found[1] if found is not None else None
        self.scalar = None
        if self.info is not None and self.info.is_map:
            self.map_type = self.info.map_type()
        if self.map_type is not None:
            self.kind = "map"
        elif name in SCALARS or (self.info is not None and isinstance(self.info.type, EnumType)):
            self.kind = "scalar"
            is_enum = self.info is not None and self.info.is_enum
            self.scalar = _GENERAL_NUMBER if is_enum else _SCALAR_KINDS[name]
        else:
            self.kind = "message"
