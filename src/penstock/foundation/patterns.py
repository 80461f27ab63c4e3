"""Regular expressions from clients: RE2's syntax, as in Kafka's brokers, matched in linear time."""

from typing import Final

import re2

from penstock.foundation.errors import InvalidRegularExpression

PATTERN_CHARS_MAX: Final = 4096
PATTERN_STEPS_MAX: Final = 5000
"""Maximum size of a compiled expression, in RE2 instructions: even the short `.{900}` compiles to many."""

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True


class Pattern:
    """A compiled regular expression. Matching takes linear time for every text and expression.

    >>> Pattern("orders-[0-9]+").matches("orders-17")
    True
    """

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARS_MAX:
            raise InvalidRegularExpression(
                f"a regular expression of {len(text)} characters; {PATTERN_CHARS_MAX} are allowed"
            )
        try:
            self._compiled = re2.compile(text, _OPTIONS)
        except (re2.error, UnicodeEncodeError) as error:
            raise InvalidRegularExpression(
                f"{text[:80]!r} is not a regular expression in RE2's syntax: {error}"
            ) from None
        if self._compiled.programsize > PATTERN_STEPS_MAX:
            raise InvalidRegularExpression(
                f"{text[:80]!r} takes {self._compiled.programsize} steps once compiled; "
                f"{PATTERN_STEPS_MAX} are allowed"
            )

    def matches(self, text: str) -> bool:
        """Returns whether the whole text matches."""
        return self._compiled.fullmatch(text) is not None
