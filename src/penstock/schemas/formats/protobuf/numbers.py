"""Normalizes numbers in options as Confluent's registry does: decimal, with at most three digits after the point.

The registry reads them with `NumberUtils.createNumber` of Commons Lang and writes them with the `DecimalFormat` of
Java 17. So a normalized number may differ in value: `0.0004` becomes `0`, and `010` becomes `8`.
"""

import math
import re
import struct
from decimal import ROUND_HALF_EVEN, Context, Decimal, DecimalException
from typing import Final

from penstock.schemas.formats.protobuf.errors import invalid
from penstock.schemas.formats.protobuf.limits import NUMBER_LENGTH_MAX

_HEXADECIMAL: Final = re.compile(r"([+-]?)(?:0[xX]|#)([0-9a-fA-F]+)")
_INTEGER: Final = re.compile(r"([+-]?)([0-9]+)")
_FRACTION: Final = re.compile(r"[ \t\n\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?[ \t\n\r]*")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS: Final = "0123456789"
_EXPONENT_MAX: Final = 2**31 - 1
_EXACT: Final = Context(prec=2 * NUMBER_LENGTH_MAX, rounding=ROUND_HALF_EVEN)
_THOUSANDTH: Final = Decimal("0.001")
_FLOAT_DIGITS_MAX: Final = 9
_FLOAT_BITS: Final = 24
_DOUBLE_BITS: Final = 53
_LONG_BITS: Final = 63


def normalize_number(text: str) -> str | None:
    """Returns the normal form of a number, None for a text that is no number, such as `inf` or `nan`.

    Raises InvalidSchema for a number of more than NUMBER_LENGTH_MAX digits.
    """
    if len(text) > NUMBER_LENGTH_MAX:
        raise invalid(f"a number in an option has at most {NUMBER_LENGTH_MAX} digits, this one has {len(text)}")
    number = read_number(text)
    if number is None or isinstance(number, int):
        return None if number is None else str(number)
    return _format(number)


def read_number(text: str) -> int | float | Decimal | None:
    """Returns the number, None for a text that is no number."""
    hexadecimal = _HEXADECIMAL.fullmatch(text)
    if hexadecimal is not None:
        return int(hexadecimal[2], 16) * (-1 if hexadecimal[1] == "-" else 1)
    if not text or text.isspace():
        return None
    last = text[-1]
    has_suffix = last not in _DIGITS and last != "."
    point = text.find(".")
    exponent = text.find("e") + text.find("E") + 1
    if exponent > len(text) or (-1 < exponent <= point):
        return None
    end = point if point >= 0 else exponent if exponent >= 0 else len(text) - has_suffix
    whole = text[1:end] if text[0] in "+-" else text[:end]
    fraction = ""
    if point >= 0:
        fraction = text[point + 1 : exponent if exponent >= 0 else len(text) - has_suffix]
    is_zero = not (whole + fraction).strip("0")
    if has_suffix:
        return _read_with_suffix(text, is_zero=is_zero, is_whole=point < 0 and not -1 < exponent < len(text) - 1)
    if point < 0 and exponent < 0:
        return _read_integer(text)
    return _read_fraction(text, is_zero=is_zero)


def _read_with_suffix(text: str, *, is_zero: bool, is_whole: bool) -> int | float | Decimal | None:
    """Reads a number with the suffix of a Java type, such as `1.5f`."""
    number, suffix = text[:-1], text[-1].lower()
    if suffix == "l":
        return _read_integer(number) if is_whole and not number.startswith("+") else None
    if suffix not in "fd":
        return None
    double = _double(text)
    if suffix == "f" and double is not None:
        single = _single(double)
        if not math.isinf(single) and (single != 0 or is_zero):
            return single
    if double is not None and not math.isinf(double) and (double != 0 or is_zero):
        return double
    return _decimal(number)


def _read_integer(text: str) -> int | None:
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    sign, digits = found.groups()
    is_octal = len(digits) > 1 and digits[0] == "0"
    if is_octal and ("8" in digits or "9" in digits):
        return None
    return int(digits, 8 if is_octal else 10) * (-1 if sign == "-" else 1)


def _read_fraction(text: str, *, is_zero: bool) -> float | Decimal | None:
    """Returns the narrowest of float, double and decimal that has the number's value when printed."""
    double = _double(text)
    if double is None:
        return _decimal(text)
    single = _single(double)
    if not math.isinf(single) and (single != 0 or is_zero) and _java_single(single) == _java_double(double):
        return single
    exact = _decimal(text)
    if exact is not None and not math.isinf(double) and (double != 0 or is_zero) and exact == _java_double(double):
        return double
    return exact


def _double(text: str) -> float | None:
    found = _FRACTION.fullmatch(text)
    return None if found is None else float(found[1])


def _single(double: float) -> float:
    try:
        single: float = struct.unpack("<f", struct.pack("<f", double))[0]
    except OverflowError:
        return math.copysign(math.inf, double)
    return single


def _java_double(double: float) -> Decimal:
    """Returns the decimal that Java 17 prints a double as."""
    return _whole(double, _DOUBLE_BITS) or Decimal(repr(double))


def _java_single(single: float) -> Decimal:
    """Returns the decimal that Java 17 prints a float as: the shortest that is read as this float, unless whole."""
    whole = _whole(single, _FLOAT_BITS)
    if whole is not None:
        return whole
    for digits in range(_FLOAT_DIGITS_MAX):
        text = f"{single:.{digits}e}"
        if _single(float(text)) == single:
            return Decimal(text)
    return Decimal(repr(single))


def _whole(number: float, bits: int) -> Decimal | None:
    """Returns a whole number of up to 63 bits with all digits but those that its precision leaves open."""
    if not number.is_integer() or not 0 < abs(number) < 2**_LONG_BITS:
        return None
    whole = abs(int(number))
    open_bits = whole.bit_length() - 1 - bits - 1
    if open_bits > 0:
        unit: int = 10 ** (len(str(2**open_bits)) - 1)
        whole = (whole // unit + (whole % unit >= unit // 2 > 0)) * unit
    return Decimal(whole if number > 0 else -whole)


def _decimal(text: str) -> Decimal | None:
    if _DECIMAL.fullmatch(text) is None:
        return None
    try:
        number = Decimal(text)
    except DecimalException:
        return None
    _, _, exponent = number.as_tuple()
    return number if isinstance(exponent, int) and abs(exponent) <= _EXPONENT_MAX else None


def _format(number: float | Decimal) -> str:
    shown = _java_double(number) if isinstance(number, float) else number
    if shown and shown.adjusted() > NUMBER_LENGTH_MAX:
        raise invalid(f"a number in an option has more than {NUMBER_LENGTH_MAX} digits")
    is_negative = math.copysign(1, number) < 0 if isinstance(number, float) else number < 0
    _, _, exponent = shown.as_tuple()
    assert isinstance(exponent, int)
    if not shown or shown.adjusted() < -NUMBER_LENGTH_MAX:
        shown = Decimal(0)
    elif exponent < -3:
        shown = (Decimal(number) if isinstance(number, float) else number).quantize(_THOUSANDTH, context=_EXACT)
    text = f"{abs(shown):f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"-{text}" if is_negative else text
