"""Parses types in Spark's DDL syntax. PySpark's own parser needs a JVM, which Spark's Python workers do not have."""

import re
from collections.abc import Callable
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.spark.errors import BadOption
from penstock.spark.values.options import PartOptions

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:]))")
_BASIC: Final[dict[str, Callable[[], DataType]]] = {
    **dict.fromkeys(("bigint", "long"), LongType),
    **dict.fromkeys(("int", "integer"), IntegerType),
    **dict.fromkeys(("smallint", "short"), ShortType),
    **dict.fromkeys(("tinyint", "byte"), ByteType),
    **dict.fromkeys(("float", "real"), FloatType),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), TimestampType),
    "double": DoubleType,
    "string": StringType,
    "boolean": BooleanType,
    "date": DateType,
    "timestamp_ntz": TimestampNTZType,
    "binary": BinaryType,
}
_DECIMALS: Final = ("decimal", "dec", "numeric")
_DIGITS_MAX: Final = 38
_DEPTH_MAX: Final = 100
_SHOWN: Final = "id BIGINT, item STRING, tags ARRAY<STRING>, customer STRUCT<name: STRING>"


def parse_ddl(text: str) -> DataType:
    """Returns the type that a text describes: a struct for a list of columns. Raises ValueError with the reason.

    >>> parse_ddl("id BIGINT, tags ARRAY<STRING>").simpleString()
    'struct<id:bigint,tags:array<string>>'
    """
    parser = _Parser(text)
    return parser.columns("") if parser.begins_with_column() else parser.whole_type()


def parse_json_type(part: PartOptions) -> DataType:
    """Returns the type of the option `valueSchema` or `keySchema` for JSON. Raises BadOption."""
    try:
        return parse_ddl(part.schema or "")
    except ValueError as error:
        raise BadOption(f"option {part.option('Schema')!r}: {error}") from None


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        end = len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"{text[at : at + 20].strip()!r} is not expected; write it like {_SHOWN}")
            self._tokens.append(match[0].strip())
            at = match.end()
        self._at = 0
        self._depth = 0

    def begins_with_column(self) -> bool:
        """Whether the text is a list of columns, not a type: a type has one word, or goes on with `<` or `(`."""
        return len(self._tokens) > 1 and self._tokens[1] not in ("<", "(")

    def whole_type(self) -> DataType:
        found = self._type()
        if self._peek():
            raise self._unexpected("the end")
        return found

    def columns(self, end: str) -> StructType:
        """Parses columns up to the token `end`; "" is the end of the text."""
        fields: list[StructField] = []
        names: set[str] = set()
        while True:
            name = self._name()
            if name.lower() in names:
                raise ValueError(f"column {name!r} is defined twice")
            names.add(name.lower())
            if self._peek() == ":":
                self._next()
            kind = self._type()
            is_nullable = not self._skip("not", "null")
            if self._skip("comment"):
                self._next()
            fields.append(StructField(name, kind, is_nullable))
            if self._peek() == end:
                return StructType(fields)
            self._expect(",")

    def _type(self) -> DataType:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ValueError(f"types are nested more than {_DEPTH_MAX} deep")
        try:
            return self._named_type(self._next().lower())
        finally:
            self._depth -= 1

    def _named_type(self, word: str) -> DataType:
        if word in _BASIC:
            return _BASIC[word]()
        if word in _DECIMALS:
            return self._decimal()
        if word == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return ArrayType(element)
        if word == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return MapType(key, value)
        if word == "struct":
            self._expect("<")
            fields = self.columns(">")
            self._expect(">")
            return fields
        raise ValueError(
            f"{word!r} is not a type; possible are {', '.join(sorted(_BASIC))}, decimal(p, s), array<…>, map<…, …>, "
            "struct<…>"
        )

    def _decimal(self) -> DecimalType:
        digits = [10, 0]
        if self._peek() == "(":
            self._next()
            digits[0] = self._number()
            if self._peek() == ",":
                self._next()
                digits[1] = self._number()
            self._expect(")")
        if not 1 <= digits[0] <= _DIGITS_MAX or digits[1] > digits[0]:
            raise ValueError(f"decimal({digits[0]}, {digits[1]}) must have 1 to {_DIGITS_MAX} digits")
        return DecimalType(*digits)

    # -- tokens

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise self._unexpected("more text")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._unexpected(repr(token))
        self._at += 1

    def _skip(self, *words: str) -> bool:
        """Skips these words if they come next; returns whether they did."""
        if tuple(token.lower() for token in self._tokens[self._at : self._at + len(words)]) != words:
            return False
        self._at += len(words)
        return True

    def _name(self) -> str:
        token = self._next()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            self._at -= 1
            raise self._unexpected("a column")
        return token

    def _number(self) -> int:
        token = self._next()
        if not token.isdecimal():
            self._at -= 1
            raise self._unexpected("a number")
        return int(token)

    def _unexpected(self, wanted: str) -> ValueError:
        found = self._peek()
        where = f"before {found!r}" if found else "at the end"
        return ValueError(f"{wanted} is missing {where}; write it like {_SHOWN}")
