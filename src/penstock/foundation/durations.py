"""Parses durations such as 30s, 5m or 2h."""

import re
from typing import Final

_WRITTEN: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h|d)?\s*")
_UNITS_S: Final = {"ms": 0.001, "s": 1, None: 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> float:
    """Returns the duration in seconds. Raises ValueError with the expected format in its message.

    >>> parse_duration("1.5m"), parse_duration("250ms"), parse_duration("30")
    (90.0, 0.25, 30.0)
    """
    matched = _WRITTEN.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is not a duration; give seconds, or text like 30s, 5m, 2h, 1d")
    return float(matched[1]) * _UNITS_S[matched[2]]
