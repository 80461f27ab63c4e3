"""Message attributes: converts between AWS's MessageAttributes and record headers, one to one.

The value of a header is the attribute's value in bytes. One further header stores the types of all attributes that
are not of type String.
"""

import json
import re
from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from penstock.broker.queues.messages import Headers
from penstock.queues.messages import ATTRIBUTE_TYPES, OWN_PREFIX
from penstock.sqs import checks, errors, limits
from penstock.sqs.digests import Attribute
from penstock.sqs.errors import INVALID_MESSAGE_CONTENTS, SqsError

TRACE_HEADER: Final = "AWSTraceHeader"
STRING: Final = "String"
BINARY: Final = "Binary"
_NAME: Final = re.compile(r"[A-Za-z0-9_\-.]+")
_TYPE: Final = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
_ALL: Final = frozenset(("All", "*", ".*"))
_NUMBER_POWER_MAX: Final = 126
_NUMBER_POWER_MIN: Final = -128
_ILLEGAL: Final = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | "
    "#x10000 to #x10FFFF"
)


def illegal_characters() -> SqsError:
    return SqsError(INVALID_MESSAGE_CONTENTS, _ILLEGAL)


def read_attributes(params: Mapping[str, Any]) -> list[Attribute]:
    """Returns the MessageAttributes of a message to send."""
    given = params.get("MessageAttributes")
    if not given:
        return []
    if type(given) is not dict:
        raise checks.wrong_type("MessageAttributes", given, "a map")
    if len(given) > limits.MESSAGE_ATTRIBUTES_MAX:
        raise errors.invalid_value(
            f"Number of message attributes [{len(given)}] exceeds the allowed maximum "
            f"[{limits.MESSAGE_ATTRIBUTES_MAX}]."
        )
    for name in given:
        _check_name(name)
    return [_read(name, value) for name, value in given.items()]


def read_system_attributes(params: Mapping[str, Any]) -> list[Attribute]:
    """Returns the MessageSystemAttributes of a message to send: AWSTraceHeader, or an empty list."""
    given = params.get("MessageSystemAttributes")
    if not given:
        return []
    if type(given) is not dict:
        raise checks.wrong_type("MessageSystemAttributes", given, "a map")
    for name in given:
        if name != TRACE_HEADER:
            raise errors.invalid_value(f"Message system attribute name '{name[:256]}' is invalid.")
    found = _read(TRACE_HEADER, given[TRACE_HEADER])
    if found.type != STRING:
        raise errors.invalid_value(f"Message system attribute '{TRACE_HEADER}' must be of type '{STRING}'.")
    return [found]


def _check_name(name: str) -> None:
    if not name or len(name) > limits.ATTRIBUTE_NAME_CHARS_MAX:
        raise errors.invalid_value(
            f"Message (user) attribute names must be shorter than {limits.ATTRIBUTE_NAME_CHARS_MAX} Bytes"
        )
    if not _NAME.fullmatch(name):
        raise errors.invalid_value(
            "Message (user) attributes name can only contain upper and lower score characters, digits, periods, "
            "hyphens and underscores."
        )
    reserved = name.lower().startswith(("aws.", "amazon."))
    if reserved or name.startswith((".", OWN_PREFIX)) or name.endswith(".") or ".." in name:
        raise errors.invalid_value(
            f"You can't use message attribute names beginning with 'AWS.', 'Amazon.' or '{OWN_PREFIX}'. These "
            "strings are reserved for internal use. Additionally, they cannot start or end with '.', or have '..' "
            "in them."
        )


def _read(name: str, given: Any) -> Attribute:
    if type(given) is not dict:
        raise checks.wrong_type(name, given, "a structure")
    kind = checks.maybe_text(given, "DataType")
    if not kind:
        raise errors.invalid_value(f"The message attribute '{name}' must contain non-empty message attribute type.")
    if len(kind) > limits.ATTRIBUTE_TYPE_CHARS_MAX:
        raise errors.invalid_value(
            f"Message (user) attribute types must be shorter than {limits.ATTRIBUTE_TYPE_CHARS_MAX} Bytes"
        )
    matched = _TYPE.fullmatch(kind)
    if matched is None:
        raise errors.invalid_value(
            f"The message attribute '{name}' has an invalid message attribute type, the set of supported type "
            "prefixes is Binary, Number, and String."
        )
    value = _bytes(name, given) if matched[1] == BINARY else _text(name, matched[1], given)
    return Attribute(name, kind, value)


def _text(name: str, kind: str, given: dict[str, Any]) -> bytes:
    value = checks.maybe_text(given, "StringValue")
    if not value:
        raise _empty(name, STRING)
    if kind == "Number":
        _check_number(name, value)
    found = value.encode()
    if not checks.is_legal(found):
        raise illegal_characters()
    return found


def _bytes(name: str, given: dict[str, Any]) -> bytes:
    try:
        value = a2b_base64(checks.maybe_text(given, "BinaryValue") or "", strict_mode=True)
    except (Base64Error, ValueError):
        raise errors.invalid_value(f"The BinaryValue of message attribute '{name}' is not base64.") from None
    if not value:
        raise _empty(name, BINARY)
    return value


def _empty(name: str, kind: str) -> SqsError:
    return errors.invalid_value(f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.")


def _check_number(name: str, value: str) -> None:
    try:
        number = Decimal(value) if len(value) <= 2 * limits.ATTRIBUTE_TYPE_CHARS_MAX else Decimal("NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    power = number.adjusted() if number.is_finite() else _NUMBER_POWER_MAX + 1
    digits = len("".join(map(str, number.as_tuple().digits)).strip("0"))
    is_small = _NUMBER_POWER_MIN <= power <= _NUMBER_POWER_MAX or number == 0
    if not number.is_finite() or not is_small or digits > limits.NUMBER_DIGITS_MAX:
        raise errors.invalid_value(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def to_headers(attributes: Iterable[Attribute]) -> list[tuple[str, bytes | None]]:
    """Returns the record headers that store these attributes."""
    headers: list[tuple[str, bytes | None]] = [(each.name, each.value) for each in attributes]
    types = {each.name: each.type for each in attributes if each.type != STRING}
    if types:
        headers.append((ATTRIBUTE_TYPES, json.dumps(types, separators=(",", ":")).encode()))
    return headers


class Filter(NamedTuple):
    """Selects the attributes that a receiver requests, by name and by prefix."""

    is_all: bool = False
    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    """Sorted prefixes, none of which starts with another one: at most one matches a name, found by bisection."""

    @classmethod
    def of(cls, names: Iterable[str]) -> "Filter":
        """Parses requested names: `All`, `*` and `.*` select all, `foo.*` all names that start with `foo`."""
        found = frozenset(names)
        prefixes: list[str] = []
        for prefix in sorted(each.removesuffix(".*") for each in found if each.endswith(".*")):
            if not prefixes or not prefix.startswith(prefixes[-1]):
                prefixes.append(prefix)
        return cls(not found.isdisjoint(_ALL), found, tuple(prefixes))

    def wants(self, name: str) -> bool:
        if self.is_all or name in self.names:
            return True
        position = bisect_right(self.prefixes, name)
        return position > 0 and name.startswith(self.prefixes[position - 1])


NOTHING: Final = Filter()


def from_headers(headers: Headers, wanted: Filter) -> list[Attribute]:
    """Returns the attributes in record headers that `wanted` selects. A header without a stored type, as Kafka
    clients send it, is String if it is text, else Binary."""
    headers = headers[: limits.ATTRIBUTES_SHOWN_MAX]
    types = _types_of(headers)
    found: dict[str, Attribute] = {}
    for name, value in headers:
        if value and not name.startswith(OWN_PREFIX) and wanted.wants(name):
            kind = types.get(name) or (STRING if _is_text(value) else BINARY)
            found[name] = Attribute(name, kind, value)
    return list(found.values())


def _types_of(headers: Headers) -> dict[str, str]:
    for name, value in headers:
        if name == ATTRIBUTE_TYPES and value:
            try:
                types = json.loads(value)
            except (ValueError, RecursionError):
                return {}
            if isinstance(types, dict):
                return {each: kind for each, kind in types.items() if isinstance(kind, str) and _TYPE.fullmatch(kind)}
    return {}


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return checks.is_legal(value)


def shown(attributes: Iterable[Attribute]) -> dict[str, dict[str, str]]:
    """Returns the attributes as MessageAttributes of a response."""
    return {
        each.name: {"BinaryValue": b64encode(each.value).decode(), "DataType": each.type}
        if each.is_binary
        else {"StringValue": each.value.decode(errors="replace"), "DataType": each.type}
        for each in attributes
    }
