"""JSON documents as Jackson reads and prints them: exact numbers, escapes, order of keys.

A schema's canonical text is its JSON document without white space, in the order of its keys. Numbers stay as they
were written, except that exponents and signs take the form of Java's BigDecimal: `1e5` becomes `1E+5`, `-0` becomes
`0`, and `NaN` the string "NaN". Text after the document is ignored, as in Confluent's registry.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final

from penstock.schemas.formats.format import InvalidSchema

Json = Any
"""A value of a JSON document: dict, list, str, int, Decimal, bool or None."""

DEPTH_MAX: Final = 500
"""Nested arrays and objects. Confluent's registry fails at 512 for draft 4 to 7, and reading uses C recursion."""
NUMBER_DIGITS_MAX: Final = 1_000
"""Digits of a number, as in Jackson: larger ones would take quadratic time."""
NAME_CHARS_MAX: Final = 50_000
"""Characters of a key, as in Jackson."""
EXPONENT_MAX: Final = 2**31 - 1
"""Largest exponent of Java's BigDecimal."""

_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_INTEGER: Final = re.compile(r"-?\d+")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SHORT_ESCAPES: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def read_document(text: str) -> Json:
    """Returns the value of the first JSON document in `text`. Raises InvalidSchema."""
    _check_depth(text)
    space = _SPACE.match(text)
    start = space.end() if space else 0
    if start == len(text):
        raise InvalidSchema("The schema is empty; expected a JSON object or a boolean.")
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise InvalidSchema(f"The schema is not valid JSON: {error}") from None
    except RecursionError:  # only if the caller itself is already deep in the stack
        raise InvalidSchema(f"The schema is nested more than {DEPTH_MAX} levels deep.") from None
    if not isinstance(value, dict | list | str) and text[end : end + 1].strip(" \t\r\n"):
        raise InvalidSchema(f"The schema is not valid JSON: unexpected {text[end]!r} after {text[start:end][:40]!r}")
    return value


def print_document(value: Json, *, is_sorted: bool = False) -> str:
    """Returns the canonical text of a value; `is_sorted`: with the keys of objects in the order of Java's strings."""
    parts: list[str] = []
    append = parts.append
    stack: list[Iterator[tuple[str, Json]]] = [iter((("", value),))]
    closing = [""]
    while stack:
        for prefix, item in stack[-1]:
            append(prefix)
            if item.__class__ is str:
                append(quote(item))
            elif item.__class__ is dict:
                append("{")
                stack.append(_members(item, is_sorted))
                closing.append("}")
                break
            elif item.__class__ is list:
                append("[")
                stack.append(_elements(item))
                closing.append("]")
                break
            else:
                append(_scalar(item))
        else:
            stack.pop()
            append(closing.pop())
    return "".join(parts)


def quote(text: str) -> str:
    """Returns a JSON string as Jackson prints it: only quotes, backslashes and control characters are escaped."""
    if _CONTROL.search(text) is None:
        return encode_basestring(text)
    return '"' + _CONTROL.sub(_escape, text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def check_encodable(text: str) -> None:
    """Raises InvalidSchema if the text holds half of a surrogate pair, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSchema(
            f"The schema contains an unpaired surrogate, U+{ord(text[error.start]):04X}, which is not a character."
        ) from None


def java_order(text: str) -> bytes:
    """A key that sorts strings as Java does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    depth = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise InvalidSchema(f"The schema is nested more than {DEPTH_MAX} levels deep.")
        elif first != '"':
            depth -= 1


def _members(value: dict[str, Json], is_sorted: bool) -> Iterator[tuple[str, Json]]:
    items = sorted(value.items(), key=lambda item: java_order(item[0])) if is_sorted else value.items()
    separator = ""
    for name, item in items:
        if len(name) > NAME_CHARS_MAX:
            raise InvalidSchema(f"A key has {len(name)} characters; at most {NAME_CHARS_MAX} are allowed.")
        yield f"{separator}{quote(name)}:", item
        separator = ","


def _elements(value: list[Json]) -> Iterator[tuple[str, Json]]:
    separator = ""
    for item in value:
        yield separator, item
        separator = ","


def _scalar(value: Json) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04X}"


def _integer(text: str) -> int:
    if len(text) > NUMBER_DIGITS_MAX:
        raise InvalidSchema(f"A number has {len(text)} digits; at most {NUMBER_DIGITS_MAX} are allowed.")
    return int(text)


def _decimal(text: str) -> int | Decimal:
    if len(text) > NUMBER_DIGITS_MAX + 4:  # the point, the sign, the exponent's letter and sign are not digits
        raise InvalidSchema(f"A number has about {len(text)} digits; at most {NUMBER_DIGITS_MAX} are allowed.")
    _, _, exponent_text = text.lower().partition("e")
    if exponent_text and abs(int(exponent_text)) > EXPONENT_MAX:
        raise InvalidSchema(f"The exponent of the number {text[:40]} is too large; the limit is {EXPONENT_MAX}.")
    value = Decimal(text)
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or not -EXPONENT_MAX <= exponent <= EXPONENT_MAX:
        raise InvalidSchema(f"The exponent of the number {text[:40]} is too large; the limit is {EXPONENT_MAX}.")
    if not value:
        value = value.copy_abs()  # BigDecimal has no negative zero
    printed = str(value)
    # A number that prints without point and exponent, such as 1E0, is an integer when it is read again.
    return int(printed) if _INTEGER.fullmatch(printed) else value


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_decimal, parse_constant=str)
