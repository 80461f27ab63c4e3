"""Durations: seconds, timedelta, or text like "30s". Pure."""

from datetime import timedelta
from math import ceil, inf

from penstock.api.errors import InvalidArgument
from penstock.foundation.durations import parse_duration

Duration = float | str | timedelta
"""Seconds, a timedelta, or text: `30`, `"30s"`, `"5m"`, `"2h"`, `"1d"`, `"250ms"`."""


def seconds_of(value: Duration, name: str) -> float:
    """Returns a duration in seconds. Raises InvalidArgument if the value is negative or not a duration.

    >>> seconds_of("1.5m", "delay"), seconds_of(timedelta(hours=1), "delay"), seconds_of(3, "delay")
    (90.0, 3600.0, 3.0)
    """
    found = -1.0
    if isinstance(value, str):
        try:
            found = parse_duration(value)
        except ValueError as error:
            raise InvalidArgument(f"{name}: {error}") from error
    elif isinstance(value, timedelta):
        found = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    if not 0 <= found < inf:
        raise InvalidArgument(f"{name}={value!r} is not a duration; give seconds, or text like '30s', '5m', '2h'")
    return found


def whole_seconds(value: Duration, name: str, *, least: int = 0, most: int) -> int:
    """Returns a duration in whole seconds, rounded up. Raises InvalidArgument unless it is from `least` to `most`.

    >>> whole_seconds("1500ms", "visibility", most=43_200)
    2
    """
    found = ceil(seconds_of(value, name))
    if not least <= found <= most:
        raise InvalidArgument(f"{name}={value!r} is out of range; a queue accepts {least} to {most} seconds")
    return found
