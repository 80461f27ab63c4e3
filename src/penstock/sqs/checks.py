"""Checks the types and values of request parameters, with AWS's error messages."""

import re
from collections.abc import Mapping, Sized
from typing import Any, Final

from penstock.sqs import errors
from penstock.sqs.errors import SERIALIZATION, SqsError
from penstock.sqs.limits import NAMES_MAX, TOKEN_CHARS_MAX, Span

Params = dict[str, Any]
_TOKEN: Final = re.compile(rf"[!-~]{{1,{TOKEN_CHARS_MAX}}}")
_KINDS: Final = {
    bool: "a Boolean",
    int: "a number",
    float: "a number",
    str: "a String",
    list: "a list",
    dict: "a map",
}
# All bytes except the control characters that XML does not allow.
_LEGAL: Final = bytes(byte for byte in range(256) if byte >= 0x20 or byte in b"\t\n\r")
_NO_CHARACTERS: Final = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")


def wrong_type(name: str, value: object, wanted: str) -> SqsError:
    kind = _KINDS.get(type(value), "null")
    return SqsError(SERIALIZATION, f"{name} is {kind}, and can not be converted to {wanted}.")


def text(params: Mapping[str, Any], name: str) -> str:
    """Returns a required string parameter. Raises MissingParameter if it is missing or empty."""
    value = params.get(name)
    if type(value) is str:
        if value:
            return value
    elif value is not None:
        raise wrong_type(name, value, "a String")
    raise errors.missing(name)


def maybe_text(params: Mapping[str, Any], name: str) -> str | None:
    """Returns a string parameter; None if it is missing."""
    value = params.get(name)
    if value is not None and type(value) is not str:
        raise wrong_type(name, value, "a String")
    return value


def maybe_int(params: Mapping[str, Any], name: str) -> int | None:
    """Returns an integer parameter; None if it is missing."""
    value = params.get(name)
    if value is not None and type(value) is not int:
        raise wrong_type(name, value, "an Integer")
    return value


def texts(params: Mapping[str, Any], name: str) -> list[str]:
    """Returns a parameter that is a list of strings; an empty list if it is missing."""
    value = params.get(name)
    if value is None:
        return []
    if type(value) is not list:
        raise wrong_type(name, value, "a list")
    _check_count(name, value)
    for each in value:
        if type(each) is not str:
            raise wrong_type(name, each, "a String")
    return value


def text_map(params: Mapping[str, Any], name: str) -> dict[str, str]:
    """Returns a parameter that is a map of strings to strings; an empty map if it is missing."""
    value = params.get(name)
    if value is None:
        return {}
    if type(value) is not dict:
        raise wrong_type(name, value, "a map")
    _check_count(name, value)
    for each in value.values():
        if type(each) is not str:
            raise wrong_type(name, each, "a String")
    return value


def _check_count(name: str, value: Sized) -> None:
    if len(value) > NAMES_MAX:
        raise errors.invalid_value(f"{name} has {len(value)} entries; at most {NAMES_MAX} are allowed.")


def entries(params: Mapping[str, Any], name: str) -> list[Params]:
    """Returns a parameter that is a list of objects; empty if it is missing. The caller must limit its length."""
    value = params.get(name)
    if value is None:
        return []
    if type(value) is not list:
        raise wrong_type(name, value, "a list")
    for each in value:
        if type(each) is not dict:
            raise wrong_type(name, each, "a structure")
    return value


def within(name: str, value: int, span: Span, reason: str) -> int:
    if not span.least <= value <= span.most:
        raise errors.invalid_parameter(name, value, reason)
    return value


def token(name: str, value: str) -> str:
    """Checks length and characters of a group id, deduplication id or attempt id; returns it unchanged."""
    if not _TOKEN.fullmatch(value):
        raise errors.invalid_parameter(
            name,
            value[: 4 * TOKEN_CHARS_MAX],
            f"{name} can only include alphanumeric and punctuation characters. 1 to {TOKEN_CHARS_MAX} in length.",
        )
    return value


def is_legal(value: bytes) -> bool:
    """Whether a UTF-8 text has only characters that SQS accepts, which are the characters allowed in XML."""
    if value.translate(None, _LEGAL):
        return False
    return value.isascii() or not any(each in value for each in _NO_CHARACTERS)
