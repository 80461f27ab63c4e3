"""Reads and writes JSON as Jackson does in Confluent's registry: comments are allowed, and nesting is limited.

Values are Python's: None, bool, int, float, str, list and dict. A key that occurs twice keeps its first place and its
last value. Numbers beyond the range of a 64-bit float are infinite; they are written as strings, like NaN.
"""

import re
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined] # typeshed lacks it
from typing import Final

from penstock.schemas.formats.avro.java_numbers import LONG_MAX, LONG_MIN, print_number
from penstock.schemas.formats.avro.recursion import Steps, run
from penstock.schemas.formats.format import InvalidSchema

Json = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

DEPTH_MAX: Final = 1000
"""Objects and arrays in each other: Jackson's limit, for reading and for writing."""
NUMBER_DIGITS_MAX: Final = 1000
"""Jackson's limit. Reading a number takes quadratic time."""
KEY_CHARS_MAX: Final = 50_000
"""Jackson's limit on the names of members."""
SHOWN_CHARS_MAX: Final = 100
"""Characters of a value that an error message shows."""

_SPACE = re.compile(r"[ \t\n\r]*")
_COMMENT = re.compile(r"//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_TRAILING = re.compile(r"[\x00-\x20]*")
"""What may follow the schema: not a comment."""
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES: Final = {chr(code): f"\\u{code:04X}" for code in range(0x20)} | _SHORT_ESCAPES


def read_json(text: str) -> Json:
    """Reads a text that is one JSON value. Raises InvalidSchema."""
    try:
        value, end = _Reader(text).read()
    except JSONDecodeError as error:
        raise InvalidSchema(f"The schema is not JSON: {error}") from None
    if _TRAILING.fullmatch(text, end) is None:
        raise InvalidSchema(f"The schema is followed by other text: {shown(text[end:].strip())}")
    return value


class _Reader:
    """Reads JSON without recursion: it keeps the arrays and objects that are not closed yet on a stack."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[tuple[dict[str, Json] | list[Json], str]] = []
        """Each with the key under which it stands in the one before."""

    def read(self) -> tuple[Json, int]:
        """Returns the first value of the text, and where it ends."""
        text, place, key = self._text, 0, ""
        inside: dict[str, Json] | list[Json] | None = None
        while True:
            place = self._skip(place)
            char = text[place : place + 1]
            value: Json
            if char == '"':
                value, place = self._string(place)
            elif char in ("{", "["):
                value = {} if char == "{" else []
                check_depth(len(self._open) + (1 if inside is None else 2))
                place = self._skip(place + 1)
                if text[place : place + 1] != ("}" if char == "{" else "]"):
                    if inside is not None:
                        self._open.append((inside, key))
                    inside = value
                    if char == "{":
                        key, place = self._key(place)
                    continue
                place += 1
            else:
                value, place = self._scalar(place)
            # The value is complete: it may complete those around it.
            while inside is not None:
                if isinstance(inside, dict):
                    inside[key] = value
                else:
                    inside.append(value)
                place = self._skip(place)
                char = text[place : place + 1]
                place += 1
                if char == ",":
                    if isinstance(inside, dict):
                        key, place = self._key(self._skip(place))
                    break
                if char != ("}" if isinstance(inside, dict) else "]"):
                    raise JSONDecodeError("Expected ',' or the end of the object or array", text, place - 1)
                value, (inside, key) = inside, self._open.pop() if self._open else (None, "")
            else:
                return value, place

    def _skip(self, place: int) -> int:
        """Skips white space and comments."""
        text = self._text
        if text[place : place + 1] not in (" ", "\n", "\r", "\t", "/"):
            return place
        while True:
            found = _SPACE.match(text, place)
            place = found.end() if found else place
            comment = _COMMENT.match(text, place)
            if comment is None:
                return place
            place = comment.end()

    def _key(self, place: int) -> tuple[str, int]:
        """Reads the name of a member with its colon."""
        if self._text[place : place + 1] != '"':
            raise JSONDecodeError("Expected the name of a member in double quotes", self._text, place)
        key, place = self._string(place)
        if len(key) > KEY_CHARS_MAX:
            raise InvalidSchema(f"The name of a member has {len(key)} characters, more than {KEY_CHARS_MAX}.")
        place = self._skip(place)
        if self._text[place : place + 1] != ":":
            raise JSONDecodeError("Expected ':'", self._text, place)
        return key, place + 1

    def _string(self, place: int) -> tuple[str, int]:
        value, place = scanstring(self._text, place + 1, True)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise InvalidSchema(f"A string has half a surrogate pair: {shown(value)}") from None
        return value, place

    def _scalar(self, place: int) -> tuple[Json, int]:
        """Reads a number, true, false or null."""
        text = self._text
        if text[place : place + 1] in _WORDS:
            word, value = _WORDS[text[place]]
            if text.startswith(word, place):
                return value, place + len(word)
        number = _NUMBER.match(text, place)
        if number is None:
            raise JSONDecodeError("Expected a value", text, place)
        if sum(map(str.isdigit, number[0])) > NUMBER_DIGITS_MAX:
            raise InvalidSchema(f"A number has more than {NUMBER_DIGITS_MAX} digits.")
        is_integer = number[1] is None and number[2] is None
        return int(number[0]) if is_integer else float(number[0]), number.end()


def quote(text: str) -> str:
    """Writes a string."""
    if _ESCAPED.search(text) is None:
        return f'"{text}"'
    return f'"{_ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)}"'


def write_json(value: Json, depth: int = 0, *, is_sorted: bool = False) -> str:
    """Writes a value that stands at this depth of a text; `is_sorted`: members in the order of their names."""
    if not isinstance(value, list | dict):
        return _write_scalar(value)
    parts: list[str] = []
    run(_write(value, depth, is_sorted, parts))
    return "".join(parts)


def _write(value: list[Json] | dict[str, Json], depth: int, is_sorted: bool, parts: list[str]) -> Steps[None]:
    check_depth(depth + 1)
    is_object = isinstance(value, dict)
    parts.append("{" if is_object else "[")
    separator = ""
    for key, member in _members(value, is_sorted):
        parts.append(separator)
        separator = ","
        if is_object:
            parts.append(f"{quote(key)}:")
        if isinstance(member, list | dict):
            yield _write(member, depth + 1, is_sorted, parts)
        else:
            parts.append(_write_scalar(member))
    parts.append("}" if is_object else "]")


def _members(value: list[Json] | dict[str, Json], is_sorted: bool) -> list[tuple[str, Json]]:
    if isinstance(value, list):
        return [("", member) for member in value]
    return sorted(value.items(), key=lambda member: java_order(member[0])) if is_sorted else list(value.items())


def _write_scalar(value: Json) -> str:
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        printed = print_number(value)
        return printed if printed[-1].isdigit() else f'"{printed}"'
    return str(value)


def check_depth(depth: int) -> None:
    """Raises InvalidSchema if a text is nested deeper than allowed."""
    if depth > DEPTH_MAX:
        raise InvalidSchema(f"The schema with its references is nested deeper than {DEPTH_MAX} levels.")


def java_order(text: str) -> bytes:
    """Sorts strings as Java does: by the units of UTF-16."""
    return text.encode("utf-16-be")


def is_same_json(one: Json, other: Json) -> bool:
    """Whether two values are the same: 1 and 1.0 are not, nor 0.0 and -0.0; the order of members does not count."""
    pairs = [(one, other)]
    while pairs:
        a, b = pairs.pop()
        if isinstance(a, dict) and isinstance(b, dict):
            if a.keys() != b.keys():
                return False
            pairs.extend((value, b[key]) for key, value in a.items())
        elif isinstance(a, list) and isinstance(b, list):
            if len(a) != len(b):
                return False
            pairs.extend(zip(a, b, strict=True))
        elif type(a) is not type(b) or (a != b if not isinstance(a, float) else _write_scalar(a) != _write_scalar(b)):
            return False
    return True


def exceeds_64_bits(value: Json) -> bool:
    """Whether a value is or has an integer that does not fit in 64 bits."""
    values = [value]
    while values:
        found = values.pop()
        if isinstance(found, list):
            values.extend(found)
        elif isinstance(found, dict):
            values.extend(found.values())
        elif isinstance(found, int) and not LONG_MIN <= found <= LONG_MAX:
            return True
    return False


def shown(value: object) -> str:
    """Returns the beginning of a value, for an error message."""
    text = value if isinstance(value, str) else _outline(value)
    text = text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
    return text.encode(errors="backslashreplace").decode()


def _outline(value: object) -> str:
    """Describes a value without what is nested in it: schemas may be large."""
    if isinstance(value, dict):
        members = (f"{quote(key[:SHOWN_CHARS_MAX])}:{_outline_member(value[key])}" for key in list(value)[:10])
        return "{" + ",".join(members) + "}"
    return _outline_member(value)


def _outline_member(value: object) -> str:
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list):
        return "[…]" if value else "[]"
    if isinstance(value, str):
        return quote(value[:SHOWN_CHARS_MAX])
    return _write_scalar(value)[:SHOWN_CHARS_MAX] if isinstance(value, int | float | None) else ""
