"""The instructions of decoders and encoders of Avro, and the reasons for which data is refused."""

import enum
from typing import Final

ZERO_BYTE_ITEMS_MAX: Final = 1000
"""Items of arrays in one payload that take no bytes, such as nulls: nothing else limits their number."""
SKIP_DEPTH_MAX: Final = 200
"""Records of recursive types within one another, in fields that the reader does not have."""
DAY_NS: Final = 86_400 * 10**9


class Read(enum.IntEnum):
    """Instructions of a decoder. Each has a column, and numbers `a` and `b`. Also in `_avro_decode.pxi`.

    An instruction that says so is followed by a body: instructions up to END, which it runs itself. It continues at
    the instruction that follows them: `a` for lists, `b` for OPTION and DEFAULT.
    """

    END = 0
    NULL = 1
    """Appends null; reads nothing."""
    BOOLEAN = 2
    INT = 3
    LONG = 4
    """`a`: 1 if the writer's type is int, here and in the next four."""
    SCALED = 5
    """A long, multiplied by `b`."""
    TIME = 6
    """A time of day, multiplied by `b`: nanoseconds."""
    LONG_AS_FLOAT = 7
    LONG_AS_DOUBLE = 8
    FLOAT = 9
    FLOAT_AS_DOUBLE = 10
    DOUBLE = 11
    STRING = 12
    BYTES = 13
    FIXED = 14
    """`a`: number of bytes."""
    ENUM = 15
    """`a`: the constant with the reader's text for the writer's first symbol; `b`: number of symbols."""
    DECIMAL = 16
    """`a`: precision; `b`: number of bytes, or -1 if a length comes first."""
    STRUCT = 17
    """Appends a struct; its fields follow."""
    LIST = 18
    """The body reads an item of at least `b` bytes."""
    MAP = 19
    """The body reads a key and a value."""
    OPTION = 20
    """A union of null and another type, whose instructions follow. `a`: index of null. Null continues at `b`."""
    UNION = 21
    """`a`: number of branches. A JUMP to each follows."""
    JUMP = 22
    """Continues at `a`."""
    DEFAULT = 23
    """The body reads the constant `a`."""
    FAIL = 24
    """Refuses the payload: the reader has no type for it. `a`: the constant with the reason."""
    SKIP = 25
    """Skips `a` bytes."""
    SKIP_VARINT = 26
    SKIP_BYTES = 27
    SKIP_LIST = 28
    """The body skips an item of at least `b` bytes."""
    CALL = 29
    """Runs the body at `a`, which skips a record."""


class Write(enum.IntEnum):
    """Instructions of an encoder, likewise. Also in `_avro_encode.pxi`."""

    END = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    DIVIDED = 4
    """A long, divided by `a` and rounded down."""
    RAW = 5
    """A float or double: `a` bytes."""
    BYTES = 6
    FIXED = 7
    """`a`: number of bytes."""
    ENUM = 8
    """`a`: the first of `b` constants: the symbols, sorted by length and bytes. Their indexes are in `numbers`."""
    DECIMAL = 9
    """`a`: precision; `b`: number of bytes, or -1 if a length comes first."""
    LIST = 10
    """A list or map. The body writes an item, or a key and a value."""
    REQUIRED = 11
    """Refuses null."""
    OPTION = 12
    """Writes the branch of null, `a`, and continues at `b`, if the value is null; else the other branch."""
    BRANCH = 13
    """Writes the branch `a`, and continues, if the value is not null; else goes on at `b`."""
    CONSTANT = 14
    """Writes the branch `a`, without a value."""
    JUMP = 15
    """Continues at `a`."""
    FAIL = 16
    """Refuses the row: none of the members of a union has a value."""


class Reason(enum.IntEnum):
    """Why a payload cannot be decoded, or a row not be encoded. Also in `_avro_decode.pxi`."""

    NONE = 0
    ENDS = 1
    VARINT = 2
    INT = 3
    LENGTH = 4
    UTF8 = 5
    BRANCH = 6
    SYMBOL = 7
    UNKNOWN_SYMBOL = 8
    BOOLEAN = 9
    DECIMAL = 10
    RANGE = 11
    COUNT = 12
    EMPTY_ITEMS = 13
    DUPLICATE = 14
    DEPTH = 15
    TRAILING = 16
    UNREADABLE = 17
    HEADER = 18


TEXTS: Final = {
    Reason.ENDS: "the payload ends within the value",
    Reason.VARINT: "the integer has more than 64 bits",
    Reason.INT: "the integer has more than 32 bits",
    Reason.LENGTH: "the length is negative",
    Reason.UTF8: "the text is not UTF-8",
    Reason.BRANCH: "the union has no branch with this index",
    Reason.SYMBOL: "the enum has no symbol with this index",
    Reason.UNKNOWN_SYMBOL: "the reader's enum does not have the symbol, and has no default",
    Reason.BOOLEAN: "the boolean is neither 0 nor 1",
    Reason.DECIMAL: "the decimal has more digits than its precision",
    Reason.RANGE: "the time is out of range",
    Reason.COUNT: "the payload is too short for the number of items",
    Reason.EMPTY_ITEMS: f"the payload has more than {ZERO_BYTE_ITEMS_MAX} items without bytes",
    Reason.DUPLICATE: "the map has a key twice",
    Reason.DEPTH: f"more than {SKIP_DEPTH_MAX} records are nested in each other",
    Reason.TRAILING: "the payload continues after the value",
    Reason.HEADER: "the payload is shorter than its header",
}
