"""Types of map fields: `map<string, .a.B>`."""

from typing import Final, NamedTuple

from penstock.schemas.formats.protobuf.errors import invalid
from penstock.schemas.formats.protobuf.limits import NESTING_MAX

_INTEGERS: Final = (
    *("int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64"),
)
_KEYS: Final = frozenset((*_INTEGERS, "bool", "string"))
SCALARS: Final = _KEYS | {"bytes", "double", "float"}


class MapType(NamedTuple):
    key: str
    value: str
    """A scalar, the name of a type, or another map type."""
    text: str

    @classmethod
    def of(cls, key: str, value: str) -> "MapType":
        """Returns a type that is valid. Raises InvalidSchema for a key that no map can have."""
        return cls._checked(f"map<{key}, {value}>")

    @classmethod
    def parse(cls, text: str) -> "MapType | None":
        """Returns the type, None for a type that is no map. Raises InvalidSchema for a key that no map can have."""
        if not text.startswith("map<") or not text.endswith(">"):
            return None
        return cls._checked(text)

    @classmethod
    def _checked(cls, text: str) -> "MapType":
        outer: MapType | None = None
        rest = text
        for _ in range(NESTING_MAX + 1):
            if not rest.startswith("map<") or not rest.endswith(">"):
                break
            key, comma, value = rest[4:-1].partition(",")
            key, value = key.strip(), value.strip()
            if not comma or key not in _KEYS:
                raise invalid(f"the key of a map must be an integer, a bool or a string: {text}")
            if not value:
                raise invalid(f"a map type has no value: {text}")
            outer = outer or cls(key, value, text)
            rest = value
        assert outer is not None
        return outer
