"""Texts that Java makes of objects and of text: stored schemas contain them, byte for byte."""

from collections.abc import Hashable
from typing import Final

from penstock.schemas.formats.protobuf.elements import Option, Primitive, Value

_ESCAPES: Final = str.maketrans(
    {
        "\a": r"\a",
        "\b": r"\b",
        "\f": r"\f",
        "\n": r"\n",
        "\r": r"\r",
        "\t": r"\t",
        "\v": r"\v",
        "\\": r"\\",
        "'": r"\'",
        '"': r"\"",
    }
)


def escape(text: str) -> str:
    """Escapes a text for a string in quotes."""
    return text.translate(_ESCAPES)


def java_order(text: str) -> bytes:
    """A key that sorts texts as Java does: by their UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def split_lines(text: str) -> list[str]:
    r"""Splits a text at line ends as Java's `split("\n")`: without the empty lines at the end."""
    lines = text.split("\n")
    if len(lines) > 1:
        while lines and not lines[-1]:
            lines.pop()
    return lines


def split_name(name: str) -> list[str]:
    r"""Splits a dotted name as Java's `split("\\.")`: without the empty parts at the end."""
    parts = name.split(".")
    if len(parts) > 1:
        while parts and not parts[-1]:
            parts.pop()
    return parts


def java_text(value: Value) -> str:
    """The text of a value of an option as Java's `toString`."""
    match value:
        case str():
            return value
        case Primitive():
            return f"OptionPrimitive(kind={value.kind.value}, value={value.value})"
        case Option():
            is_custom = "true" if value.is_custom else "false"
            start = f"OptionElement(name={value.name}, kind={value.kind.value}, value="
            return f"{start}{java_text(value.value)}, isParenthesized={is_custom})"
        case dict():
            return "{" + ", ".join(f"{name}={java_text(each)}" for name, each in value.items()) + "}"
        case _:
            assert isinstance(value, list)
            return "[" + ", ".join(java_text(each) for each in value) + "]"


def identity(value: Value) -> Hashable:
    """A key that is equal for values that are equal in Java: for maps, order does not count."""
    match value:
        case str() | Primitive():
            return value
        case Option():
            return ("option", value.name, value.kind, identity(value.value), value.is_custom)
        case dict():
            return ("map", frozenset((name, identity(each)) for name, each in value.items()))
        case _:
            assert isinstance(value, list)
            return ("list", tuple(identity(each) for each in value))
