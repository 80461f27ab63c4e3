"""Prints options and their values. Lines after the first start with the prefix of the statement that they are in."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.schemas.formats.protobuf.elements import PRIMITIVE_KINDS, Kind, Option, Primitive, Value
from penstock.schemas.formats.protobuf.errors import invalid
from penstock.schemas.formats.protobuf.java_text import escape, java_text
from penstock.schemas.formats.protobuf.limits import TEXT_LENGTH_MAX


class Writer:
    """A text that grows up to TEXT_LENGTH_MAX."""

    __slots__ = ("_left", "_parts")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._left = TEXT_LENGTH_MAX

    def write(self, text: str) -> None:
        """Appends a text. Raises InvalidSchema when the whole gets too long."""
        self._left -= len(text)
        if self._left < 0:
            raise invalid(f"the schema has more than {TEXT_LENGTH_MAX} characters when it is printed")
        self._parts.append(text)

    def text(self) -> str:
        return "".join(self._parts)


def write_option(writer: Writer, option: Option, prefix: str) -> None:
    """Writes an option without what surrounds it: `(name).field = "value"`."""
    value = option.value
    while option.kind is Kind.OPTION:
        assert isinstance(value, Option)
        writer.write(f"{_name(option)}.")
        option, value = value, value.value
    writer.write(f"{_name(option)} = ")
    match option.kind:
        case Kind.STRING:
            writer.write(f'"{escape(java_text(value))}"')
        case Kind.MAP:
            _write_value(writer, value, prefix)
        case Kind.LIST:
            assert isinstance(value, list)
            if len(value) == 1:
                writer.write("[")
                _write_value(writer, value[0], prefix)
                writer.write("]")
            else:
                _write_value(writer, value, prefix)
        case _:
            writer.write(java_text(value).replace("\n", f"\n{prefix}"))


def write_options(writer: Writer, options: Sequence[Option], prefix: str) -> None:
    """Writes options in brackets: one on the same line, several each on its own."""
    if len(options) == 1:
        writer.write("[")
        write_option(writer, options[0], prefix)
        writer.write("]")
        return
    inner = prefix + "  "
    separator = f"[\n{inner}"
    for option in options[:-1]:
        writer.write(separator)
        write_option(writer, option, inner)
        separator = f",\n{inner}"
    writer.write(separator)
    write_option(writer, _without_last_line_ends(options[-1]), inner)
    writer.write(f"\n{prefix}]")


def _without_last_line_ends(option: Option) -> Option:
    """The default value of a number may be a string with line ends. The registry drops them from the last option."""
    if option.kind not in PRIMITIVE_KINDS or not isinstance(option.value, str):
        return option
    return option._replace(value=option.value.rstrip("\n"))


def _name(option: Option) -> str:
    return f"({option.name})" if option.is_custom else option.name


def _write_value(writer: Writer, value: Value, prefix: str) -> None:
    match value:
        case str():
            writer.write(f'"{escape(value)}"')
        case Primitive():
            writer.write(value.value)
        case Option():
            write_option(writer, value, prefix)
        case dict():
            _write_entries(writer, value, prefix)
        case _:
            assert isinstance(value, list)
            _write_items(writer, value, prefix)


def _write_entries(writer: Writer, values: Mapping[str, Value], prefix: str) -> None:
    inner = prefix + "  "
    separator = "{\n"
    for name, value in values.items():
        writer.write(f"{separator}{inner}{name}: ")
        _write_value(writer, value, inner)
        separator = ",\n"
    writer.write(f"\n{prefix}}}" if values else f"{separator}{prefix}}}")


def _write_items(writer: Writer, values: Iterable[Value], prefix: str) -> None:
    inner = prefix + "  "
    separator = "[\n"
    for value in values:
        writer.write(f"{separator}{inner}")
        _write_value(writer, value, inner)
        separator = ",\n"
    writer.write(f"{separator}{prefix}]" if separator == "[\n" else f"\n{prefix}]")
