"""A Protobuf schema of the registry: its text, its normal form, other layouts, and comparison with other versions."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from penstock.schemas.formats.format import Difference, InvalidSchema
from penstock.schemas.formats.protobuf.descriptor_reader import decode_base64, read_descriptor
from penstock.schemas.formats.protobuf.differences import Side, find_differences
from penstock.schemas.formats.protobuf.elements import File
from penstock.schemas.formats.protobuf.errors import invalid
from penstock.schemas.formats.protobuf.file_sets import check_descriptors, serialized_descriptor
from penstock.schemas.formats.protobuf.known_files import known_files
from penstock.schemas.formats.protobuf.limits import FILES_MAX
from penstock.schemas.formats.protobuf.normalization import normalize_file
from penstock.schemas.formats.protobuf.parser import parse_file
from penstock.schemas.formats.protobuf.printer import Style, print_file
from penstock.schemas.formats.protobuf.type_names import TypeNames


class Reference(NamedTuple):
    """A file that a schema refers to."""

    text: str
    file: File


class ProtobufSchema:
    """A parsed schema and the files that it refers to. Immutable."""

    def __init__(self, text: str, references: Mapping[str, "Reference"], file: File | None = None) -> None:
        self.text: Final = text
        self.references: Final = references
        self._parsed = file

    @cached_property
    def file(self) -> File:
        return parse_file(self.text) if self._parsed is None else self._parsed

    @cached_property
    def files(self) -> Mapping[str, File]:
        """All files that it may import, by path: those that every schema may import, and its references."""
        return {**known_files(), **{name: each.file for name, each in self.references.items()}}

    @cached_property
    def names(self) -> TypeNames:
        return TypeNames(self.file, self.files)

    def normalized(self) -> "ProtobufSchema":
        """Returns the schema with full type names, and sorted where order has no meaning. Raises InvalidSchema if a
        type is not defined."""
        return self._normalized

    @cached_property
    def _normalized(self) -> "ProtobufSchema":
        normal = normalize_file(self.file, self.names)
        text = print_file(normal.file, Style.NORMAL)
        return ProtobufSchema(text, self.references, None if normal.can_be_parsed else parse_file(text))

    def formatted(self, name: str) -> str:
        """Returns the text in a layout: "" and "default" are `text`, "ignore_extensions" is without extensions and
        their options, "serialized" is a file descriptor in base64. Other names mean `text`, too."""
        match name.strip().lower():
            case "ignore_extensions":
                return print_file(self.file, Style.NO_EXTENSIONS)
            case "serialized":
                return serialized_descriptor(self)
        return self.text

    def validate(self, *, fields: bool) -> None:
        """Raises InvalidSchema if a type is not defined. `fields`: also if Java could not build classes from it."""
        _ = self._normalized
        if fields:
            check_descriptors(self)

    def differences(self, writer: "ProtobufSchema") -> Sequence[Difference]:
        """Returns why data written with schema `writer` cannot be read with this schema."""
        return find_differences(
            Side(writer.names, writer.file.types, writer.file.package),
            Side(self.names, self.file.types, self.file.package),
            self._unchanged_files(writer),
        )

    def _unchanged_files(self, other: "ProtobufSchema") -> frozenset[str]:
        """Returns the names of files that are the same in both schemas, and depend only on such files."""
        unchanged = {name for name in self.files.keys() & other.files.keys() if self._is_unchanged(name, other)}
        importers: dict[str, list[str]] = {}
        for name, file in self.files.items():
            for path in (*file.imports, *file.public_imports):
                importers.setdefault(path, []).append(name)
        pending = [path for path in importers if path not in unchanged]
        pending += other.files.keys() - self.files.keys()
        while pending:
            for name in importers.get(pending.pop(), ()):
                if name in unchanged:
                    unchanged.remove(name)
                    pending.append(name)
        return frozenset(unchanged)

    def _is_unchanged(self, name: str, other: "ProtobufSchema") -> bool:
        mine, others = self.references.get(name), other.references.get(name)
        return mine == others if mine is None or others is None else mine.text == others.text

    def is_same(self, other: "ProtobufSchema") -> bool:
        """Whether both have the same text: the text of a Protobuf schema does not contain its references."""
        return self.text == other.text


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Parses the text of a .proto file, or a file descriptor in base64. Raises InvalidSchema."""
    if len(references) > FILES_MAX:
        raise invalid(f"a schema refers to at most {FILES_MAX} others, this one to {len(references)}")
    file, printed = _parse(text)
    return ProtobufSchema(
        print_file(file, Style.CANONICAL) if printed is None else printed,
        {name: Reference(each, _parse(each)[0]) for name, each in references.items()},
        file,
    )


def _parse(text: str) -> tuple[File, str | None]:
    """Returns a file, and its canonical text if it was a descriptor."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise invalid("the schema has a surrogate, which is no character of its own") from None
    try:
        return parse_file(text), None
    except InvalidSchema:
        serialized = decode_base64(text)
        if serialized is None:
            raise
        # Names in descriptors may be anything: what is stored must be a text that can be parsed.
        printed = print_file(read_descriptor(serialized), Style.CANONICAL)
        return parse_file(printed), printed
