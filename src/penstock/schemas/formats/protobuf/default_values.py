"""Checks the default values of fields as Protobuf's Java library parses them."""

import re
from typing import Final

_INTEGER_BITS: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (True, 32)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (True, 64)),
    **dict.fromkeys(("uint32", "fixed32"), (False, 32)),
    **dict.fromkeys(("uint64", "fixed64"), (False, 64)),
}
_FLOAT: Final = re.compile(
    r"[\x00-\x20]*[+-]?(?:NaN|Infinity"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)[\x00-\x20]*"
)
_DIGITS: Final = {
    8: re.compile("[+-]?[0-7]+"),
    10: re.compile("[+-]?[0-9]+"),
    16: re.compile("[+-]?[0-9a-fA-F]+"),
}
_INTEGER_LENGTH_MAX: Final = 100
_PLAIN_ESCAPES: Final = re.compile(
    r"""(?:[^\\]++|\\(?:[0-7]{1,3}|[abfnrtv\\'"?]|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}))*+"""
)
_UNICODE_ESCAPES: Final = re.compile(r"\\\\|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})")
_CODE_POINT_MAX: Final = 0x10FFFF


def is_default_value(text: str, type_: str) -> bool:
    """Whether a scalar type can have this default value."""
    bits = _INTEGER_BITS.get(type_)
    if bits is not None:
        return _is_integer(text, is_signed=bits[0], bits=bits[1])
    if type_ in ("float", "double"):
        return text in ("inf", "-inf", "nan") or _FLOAT.fullmatch(text) is not None
    return type_ != "bytes" or _is_escaped(text)


def _is_integer(text: str, *, is_signed: bool, bits: int) -> bool:
    is_negative = text.startswith("-")
    if is_negative and not is_signed:
        return False
    digits = text.removeprefix("-")
    radix = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    digits = digits.removeprefix("0x")
    if len(digits) > _INTEGER_LENGTH_MAX or _DIGITS[radix].fullmatch(digits) is None:
        return False
    number = int(digits, radix) * (-1 if is_negative else 1)
    if is_signed:
        return -(1 << bits - 1) <= number < 1 << bits - 1
    return 0 <= number < 1 << bits


def _is_escaped(text: str) -> bool:
    if _PLAIN_ESCAPES.fullmatch(text) is None:
        return False
    for found in _UNICODE_ESCAPES.finditer(text):
        code_point = int(found[1] or found[2] or "0", 16)
        if 0xD800 <= code_point <= 0xDFFF or code_point > _CODE_POINT_MAX:
            return False
    return True
