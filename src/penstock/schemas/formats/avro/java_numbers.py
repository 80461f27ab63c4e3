"""Numbers as Java reads and prints them: `Double.toString`, `Float.toString` and `Double.parseDouble`.

The canonical text of a schema is printed by Java in Confluent's registry. The digits are those of JDK 19 and newer,
the fewest that are read as the same number. Older JDKs print more digits for a few numbers.
"""

import math
import re
import struct

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
TEXT_CHARS_MAX = 1000
"""A number in a string that is longer is refused: as long as Jackson allows numbers to be."""

_PLAIN_MIN, _PLAIN_END = 1e-3, 1e7
"""Java prints numbers outside this range with an exponent."""
_NORMAL_MIN = 2.0**-1022
"""Numbers below have fewer digits that count."""
_SINGLE_OVERFLOW = 2.0**128 - 2.0**103
"""Half-way between the largest 32-bit float and the next one: from here on, numbers round to infinity."""
_SINGLE_DIGITS_MAX = 9
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_SPECIAL = re.compile(r"[+-]?(?:NaN|Infinity)")
_TRIMMED = "".join(map(chr, range(0x21)))
"""What `String.trim` removes."""


class Single(float):
    """A number that Java holds in 32 bits, and prints with as many digits as those need."""

    __slots__ = ()


def to_single(value: float) -> Single:
    """Rounds to a 32-bit float; numbers beyond its range become infinite."""
    if abs(value) >= _SINGLE_OVERFLOW:
        return Single(math.copysign(math.inf, value))
    return Single(struct.unpack("<f", struct.pack("<f", value))[0])


def print_number(value: float) -> str:
    """Prints a number as `Double.toString` does; a Single as `Float.toString`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    magnitude = abs(float(value))
    if magnitude == 0.0:
        return sign + "0.0"
    if isinstance(value, Single):
        digits, exponent = _single_digits(magnitude)
    elif _PLAIN_MIN <= magnitude < _PLAIN_END:
        return repr(value)  # Python prints these as Java does
    else:
        digits, exponent = _double_digits(magnitude)
    if _PLAIN_MIN <= magnitude < _PLAIN_END:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        digits = digits.ljust(exponent + 1, "0")
        return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def parse_double(text: str) -> float | None:
    """Returns the number that `Double.parseDouble` reads from a text; None if it is not one."""
    text = text.strip(_TRIMMED)
    if len(text) > TEXT_CHARS_MAX:
        return None
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if _SPECIAL.fullmatch(text):
        return float(text)
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.rstrip("fFdD"))
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    return None


def _double_digits(value: float) -> tuple[str, int]:
    """Returns the significant digits, and the exponent of the first one."""
    digits, exponent = _split(repr(value))
    if len(digits) == 1 and value < _NORMAL_MIN:
        # Java chooses among numbers of two digits if one digit is enough: 9.9E-324, not 1.0E-323.
        longer = f"{value:.1e}"
        if float(longer) == value:
            return _split(longer)
    return digits, exponent


def _single_digits(value: float) -> tuple[str, int]:
    """As above, with the digits that tell a 32-bit float from its neighbours."""
    # Floats are closer together below a power of two than above it: there the nearest number may be read as another.
    steps = (0, 1, -1) if math.frexp(value)[0] == 0.5 else (0,)
    for count in range(2, _SINGLE_DIGITS_MAX + 1):
        nearest = f"{value:.{count - 1}e}"
        for step in steps:
            text = _add(nearest, step) if step else nearest
            if to_single(float(text)) == value:
                return _split(text)
    return _double_digits(value)


def _add(text: str, step: int) -> str:
    """Adds a number to the last digit of another with an exponent."""
    mantissa, _, exponent = text.partition("e")
    digits = mantissa.replace(".", "")
    return f"{int(digits) + step}e{int(exponent) - len(digits) + 1}"


def _split(text: str) -> tuple[str, int]:
    """Splits the text of a positive number into its significant digits and the exponent of the first one."""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    first = len(whole) - 1 - (len(whole) + len(fraction) - len(digits))
    return digits.rstrip("0") or "0", first + int(exponent or 0)
