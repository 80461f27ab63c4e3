"""Filters that Spark pushes down: what they say of topics, partitions, offsets and times narrows what is read.

A filter is taken over (`exact`) only if what is left has no row that it would drop; all others Spark applies again.
Views are to come in here: a filter on headers will choose what the broker sends.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from penstock.foundation.ids import TopicPartition
from penstock.spark.read_plan import Span

NEVER_NULL: Final = ("topic", "partition", "offset", "timestampType")
"""A timestamp is null if it is too far off for Spark."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """What all filters together leave to be read."""

    names: tuple[Filter, ...] = ()
    """Filters on topic and partition, by which whole partitions are left out."""
    offset_least: int = 0
    offset_most: int = 2**63 - 1
    time_least_ms: int | None = None
    """Nothing before the first record of this time is wanted."""

    def wants(self, name: TopicPartition) -> bool:
        return all(_holds(test, name) for test in self.names)

    def narrow(self, span: Span) -> Span:
        """The part of a span that may have rows which pass."""
        start = max(span.start, self.offset_least)
        return Span(span.name, start, max(start, min(span.end, self.offset_most + 1)))


def narrow(filters: Iterable[Filter]) -> tuple[Narrowed, list[Filter]]:
    """What is left to read, and the filters that Spark has to apply to it again."""
    narrowed = Narrowed()
    again = []
    for pushed in filters:
        narrowed, exact = _take(narrowed, pushed)
        if not exact:
            again.append(pushed)
    return narrowed, again


def _take(narrowed: Narrowed, pushed: Filter) -> tuple[Narrowed, bool]:
    """The filter added, and whether it is wholly taken over."""
    column = _column(pushed)
    if isinstance(pushed, IsNotNull):
        return narrowed, column in NEVER_NULL
    if column in ("topic", "partition") and _can_test(pushed):
        return replace(narrowed, names=(*narrowed.names, pushed)), True
    if column == "offset":
        bounds = _bounds(pushed)
        if bounds is not None:
            least, most, exact = bounds
            return (
                replace(
                    narrowed,
                    offset_least=max(narrowed.offset_least, least),
                    offset_most=min(narrowed.offset_most, most),
                ),
                exact,
            )
    if column == "timestamp":
        least_ms = _time_least_ms(pushed)
        if least_ms is not None:
            times = [time_ms for time_ms in (narrowed.time_least_ms, least_ms) if time_ms is not None]
            # Times need not rise with offsets: what comes after the first late record may be early again.
            return replace(narrowed, time_least_ms=max(times)), False
    return narrowed, False


def _column(pushed: Filter) -> str | None:
    """The one column that a filter is about; None if it is about a part of one."""
    if isinstance(pushed, Not):
        return _column(pushed.child)
    path: tuple[str, ...] = getattr(pushed, "attribute", ())
    return path[0] if len(path) == 1 else None


_TESTS: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: lambda have, want: have == want,
    EqualNullSafe: lambda have, want: have == want,
    GreaterThan: lambda have, want: have > want,
    GreaterThanOrEqual: lambda have, want: have >= want,
    LessThan: lambda have, want: have < want,
    LessThanOrEqual: lambda have, want: have <= want,
    In: lambda have, want: have in want,
    StringStartsWith: lambda have, want: have.startswith(want),
    StringEndsWith: lambda have, want: have.endswith(want),
    StringContains: lambda have, want: want in have,
}


def _can_test(pushed: Filter) -> bool:
    """Whether names can be held against it here just as Spark would: null and other types are left to Spark."""
    test = pushed.child if isinstance(pushed, Not) else pushed
    if type(test) not in _TESTS:
        return False
    kind = str if _column(test) == "topic" else int
    value = test.value  # type: ignore[attr-defined]  # all of them have one
    if kind is str and not isinstance(
        test, EqualTo | EqualNullSafe | In | StringStartsWith | StringEndsWith | StringContains
    ):
        return False  # the order of texts is Spark's to decide
    values = value if isinstance(test, In) else (value,)
    return all(type(item) is kind for item in values)


def _holds(pushed: Filter, name: TopicPartition) -> bool:
    if isinstance(pushed, Not):
        return not _holds(pushed.child, name)
    have = name.topic if _column(pushed) == "topic" else name.partition
    return _TESTS[type(pushed)](have, pushed.value)  # type: ignore[attr-defined]


def _bounds(pushed: Filter) -> tuple[int, int, bool] | None:
    """The least and the greatest offset that pass, and whether all between them do."""
    value = getattr(pushed, "value", None)
    if isinstance(pushed, In) and value and all(type(item) is int for item in value):
        return min(value), max(value), max(value) - min(value) + 1 == len(set(value))
    if type(value) is not int:
        return None
    most = 2**63 - 1
    match pushed:
        case EqualTo() | EqualNullSafe():
            return value, value, True
        case GreaterThan():
            return value + 1, most, True
        case GreaterThanOrEqual():
            return value, most, True
        case LessThan():
            return 0, value - 1, True
        case LessThanOrEqual():
            return 0, value, True
    return None


def _time_least_ms(pushed: Filter) -> int | None:
    """The earliest time that passes, in whole milliseconds, if the filter has one."""
    value = getattr(pushed, "value", None)
    if isinstance(pushed, In) and value and all(isinstance(item, datetime) for item in value):
        value = min(value, key=_microseconds)
    elif not isinstance(pushed, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
        return None
    if not isinstance(value, datetime):
        return None
    time_ms = _microseconds(value) // 1000
    return time_ms if time_ms >= 0 else None  # below zero are records without a time, and the words of ListOffsets


def _microseconds(time: datetime) -> int:
    aware = time if time.tzinfo is not None else time.astimezone()
    gone = aware - _EPOCH
    return (gone.days * 86_400 + gone.seconds) * 1_000_000 + gone.microseconds
