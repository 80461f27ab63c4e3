"""Names of Avro types, fields and symbols: how they are split, and which are allowed."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
TYPE_NAMES: Final = PRIMITIVES | {"record", "enum", "array", "map", "union", "fixed"}
"""Names that mean a type; a named type in a namespace that is called so is always referred to by its full name."""

_STRICT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def full_name(name: str, namespace: str) -> str:
    """Returns the full name of a type that is called `name` in a namespace; "" is none."""
    if "." in name:
        # ".Name" is the type without a namespace.
        return name[1:] if name.rfind(".") == 0 else name
    return f"{namespace}.{name}" if namespace else name


def namespace_of(name: str) -> str:
    """Returns the namespace of a full name, or ""."""
    return name.rpartition(".")[0]


def simple_name(name: str) -> str:
    """Returns the part of a full name after the namespace."""
    return name.rpartition(".")[2]


def name_within(name: str, namespace: str) -> str:
    """Returns how a type is referred to from within a namespace: without its own one, if that is the same."""
    own, _, simple = name.rpartition(".")
    return simple if own and own == namespace and simple not in TYPE_NAMES else name


def is_name(name: str) -> bool:
    """Whether a stored schema may use the name: letters of any script, digits and `_`, in the basic plane of Unicode.

    Java looks at units of UTF-16, of which those of other planes are no letters.
    """
    if _STRICT.fullmatch(name):
        return True
    kinds = ["L" if char == "_" else unicodedata.category(char)[: 1 if char.isalpha() else 2] for char in name]
    return bool(name) and max(name) <= "\uffff" and kinds[0] == "L" and all(kind in ("L", "Nd") for kind in kinds)


def is_strict_name(name: str) -> bool:
    """Whether a new schema may use the name: ASCII letters, digits and `_`, as Avro's specification says."""
    return _STRICT.fullmatch(name) is not None


def invalid_parts(name: str) -> Iterator[str]:
    """Returns the parts of a full name that a new schema may not use."""
    return (part for part in name.split(".") if not is_strict_name(part))
