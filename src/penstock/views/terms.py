"""The syntax tree of a view's filter expression: comparisons of fields with values, AND, OR and NOT. Pure data."""

from dataclasses import dataclass
from enum import IntEnum

Value = str | int | float | bool
"""Type of the values that a field can be compared with."""


class Op(IntEnum):
    """Comparison operators; the enum values are the operator codes of records/kernel.py."""

    EQ = 0
    NE = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5

    @property
    def mirrored(self) -> "Op":
        """The operator with its operands swapped: 3 < x is x > 3."""
        return _MIRRORED[self]


_MIRRORED = {Op.EQ: Op.EQ, Op.NE: Op.NE, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}


@dataclass(frozen=True, slots=True)
class Header:
    """The value of the record's first header with this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Key:
    """The field `key` of a filter expression: the record's key."""


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The field `timestamp` of a filter expression: the record's timestamp, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The index of the record's partition."""


@dataclass(frozen=True, slots=True)
class Path:
    """A path in the record's JSON value: field names and list indexes."""

    steps: tuple[str | int, ...]


Field = Header | Key | Timestamp | Partition | Path


@dataclass(frozen=True, slots=True)
class Compare:
    field: Field
    op: Op
    value: Value


@dataclass(frozen=True, slots=True)
class Among:
    """Whether a field equals one of these values, which all have the same type."""

    field: Field
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """A LIKE pattern: `%` matches any text, `_` one character; after `escape`, `%` and `_` are literal."""

    field: Field
    pattern: str
    escape: str = ""


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether the field is absent or null."""

    field: Field


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple["Term", ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple["Term", ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: "Term"


Term = Compare | Among | Like | IsNull | And | Or | Not
