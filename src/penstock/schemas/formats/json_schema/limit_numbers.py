"""Numbers of limits, converted and divided as Java does, in bounded time for any exponent."""

from decimal import Decimal
from typing import Final

_DIGITS_MAX: Final = 2_000
"""Digits of a divisor that is still computed; see NUMBER_DIGITS_MAX of documents."""


def to_double(value: int | Decimal) -> float:
    """Returns a number as Java's `doubleValue` does: infinity if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def to_int(value: int | Decimal) -> int:
    """Returns a number as Java's `intValue` does: without fraction, the lowest 32 bits."""
    if isinstance(value, Decimal):
        adjusted = value.adjusted()
        value = 0 if adjusted < 0 or adjusted > _DIGITS_MAX else int(value)
    return (value + 2**31) % 2**32 - 2**31


def is_multiple(value: int | Decimal, of: int | Decimal) -> bool:
    """Whether dividing one number by another leaves no remainder."""
    if not of:
        return False
    digits, exponent = _parts(value)
    of_digits, of_exponent = _parts(of)
    shift = exponent - of_exponent
    if shift >= 0:
        return digits * pow(10, shift, abs(of_digits)) % of_digits == 0
    return not digits or (-shift <= _DIGITS_MAX and digits % (of_digits * 10**-shift) == 0)


def _parts(value: int | Decimal) -> tuple[int, int]:
    """Returns the digits of a number, and the exponent of the last one."""
    if isinstance(value, int):
        return value, 0
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number, int(exponent)
