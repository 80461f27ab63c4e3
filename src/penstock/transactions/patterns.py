"""Patterns of transactional ids, which clients may send (KIP-1152)."""

from typing import Final

import re2

from penstock.transactions.errors import InvalidPattern

PATTERN_CHARS_MAX: Final = 4096
PATTERN_STEPS_MAX: Final = 4096
"""How large a pattern may be once it is compiled: a{900} is short to write."""

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True


class Pattern:
    """A regular expression in RE2's syntax, as Kafka has it: nobody can stall the broker with one.

    >>> Pattern("orders-[0-9]+").matches("orders-17")
    True
    """

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARS_MAX:
            raise InvalidPattern(f"a pattern of {len(text)} characters; {PATTERN_CHARS_MAX} are allowed")
        try:
            self._compiled = re2.compile(text, _OPTIONS)
        except (re2.error, UnicodeEncodeError) as error:
            raise InvalidPattern(f"{text!r} is not a regular expression in RE2's syntax: {error}") from None
        if self._compiled.programsize > PATTERN_STEPS_MAX:
            raise InvalidPattern(
                f"{text!r} takes {self._compiled.programsize} steps once compiled; {PATTERN_STEPS_MAX} are allowed"
            )

    def matches(self, text: str) -> bool:
        """Whether the whole text is of this pattern."""
        return self._compiled.fullmatch(text) is not None
