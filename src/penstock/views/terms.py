"""An expression, parsed: a tree of comparisons of fields with values. Pure data."""

from dataclasses import dataclass
from enum import IntEnum

Value = str | int | float | bool
"""What a field is compared with."""


class Op(IntEnum):
    """Comparisons; the numbers are those that the kernel knows."""

    EQ = 0
    NE = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5

    @property
    def mirrored(self) -> "Op":
        """The same, seen from the other side: 3 < x is x > 3."""
        return _MIRRORED[self]


_MIRRORED = {Op.EQ: Op.EQ, Op.NE: Op.NE, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}


@dataclass(frozen=True, slots=True)
class Header:
    """The first header of a name."""

    name: str


@dataclass(frozen=True, slots=True)
class Key:
    """The record's key."""


@dataclass(frozen=True, slots=True)
class Timestamp:
    """In milliseconds."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The partition's number."""


@dataclass(frozen=True, slots=True)
class Path:
    """A place in the value, which is JSON: names of fields, and numbers of items."""

    steps: tuple[str | int, ...]


Field = Header | Key | Timestamp | Partition | Path


@dataclass(frozen=True, slots=True)
class Compare:
    field: Field
    op: Op
    value: Value


@dataclass(frozen=True, slots=True)
class Among:
    """Whether a field is one of these values, which are all of one kind."""

    field: Field
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """`%` stands for any text, `_` for one character; after `escape` either stands for itself."""

    field: Field
    pattern: str
    escape: str = ""


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether there is no such thing in the record."""

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
