"""Filter pushdown: turns Spark's filters on topic, partition, offset and timestamp into offset ranges.

A filter counts as exact if all rows in the resulting offset ranges pass it. Spark evaluates all other filters again.
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
from penstock.spark.read_plan import OffsetRange

NEVER_NULL: Final = ("topic", "partition", "offset", "timestampType")
"""Names of the columns that are never null. `timestamp` is null for times that Spark cannot represent."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedFilters:
    """The combined bounds of all filters that Spark has pushed down."""

    partition_filters: tuple[Filter, ...] = ()
    """Filters on topic and partition, which exclude whole partitions."""
    offset_min: int = 0
    offset_max: int = 2**63 - 1
    time_min_ms: int | None = None
    """Minimum timestamp, in milliseconds: reading starts at the first record of this time or later."""

    def matches(self, tp: TopicPartition) -> bool:
        return all(_matches(test, tp) for test in self.partition_filters)

    def clip(self, offset_range: OffsetRange) -> OffsetRange:
        """Returns an offset range without the offsets at its start and end that the filters exclude."""
        start = max(offset_range.start, self.offset_min)
        return OffsetRange(offset_range.tp, start, max(start, min(offset_range.end, self.offset_max + 1)))


def push_filters(filters: Iterable[Filter]) -> tuple[PushedFilters, list[Filter]]:
    """Returns the combined bounds of all filters, and the residual filters that Spark must evaluate itself."""
    pushed_filters = PushedFilters()
    residual = []
    for pushed in filters:
        pushed_filters, exact = _add(pushed_filters, pushed)
        if not exact:
            residual.append(pushed)
    return pushed_filters, residual


def _add(pushed_filters: PushedFilters, pushed: Filter) -> tuple[PushedFilters, bool]:
    """Returns the bounds narrowed by the filter `pushed`, and whether all rows within the bounds pass that filter."""
    column = _column(pushed)
    if isinstance(pushed, IsNotNull):
        return pushed_filters, column in NEVER_NULL
    if column in ("topic", "partition") and _can_evaluate(pushed):
        return replace(pushed_filters, partition_filters=(*pushed_filters.partition_filters, pushed)), True
    if column == "offset":
        bounds = _bounds(pushed)
        if bounds is not None:
            least, most, exact = bounds
            return (
                replace(
                    pushed_filters,
                    offset_min=max(pushed_filters.offset_min, least),
                    offset_max=min(pushed_filters.offset_max, most),
                ),
                exact,
            )
    if column == "timestamp":
        least_ms = _time_min_ms(pushed)
        if least_ms is not None:
            times = [time_ms for time_ms in (pushed_filters.time_min_ms, least_ms) if time_ms is not None]
            # Timestamps need not increase with offsets: later offsets may hold earlier times again.
            return replace(pushed_filters, time_min_ms=max(times)), False
    return pushed_filters, False


def _column(pushed: Filter) -> str | None:
    """Returns the name of the column that a filter tests; None if it tests a nested field."""
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


def _can_evaluate(pushed: Filter) -> bool:
    """Whether `_matches` evaluates a filter as Spark does. Returns False for null, and for `<` or `>` on strings."""
    test = pushed.child if isinstance(pushed, Not) else pushed
    if type(test) not in _TESTS:
        return False
    kind = str if _column(test) == "topic" else int
    value = test.value  # type: ignore[attr-defined]  # all types in _TESTS have it
    if kind is str and not isinstance(
        test, EqualTo | EqualNullSafe | In | StringStartsWith | StringEndsWith | StringContains
    ):
        return False  # the order of strings depends on Spark's collation
    values = value if isinstance(test, In) else (value,)
    return all(type(item) is kind for item in values)


def _matches(pushed: Filter, tp: TopicPartition) -> bool:
    if isinstance(pushed, Not):
        return not _matches(pushed.child, tp)
    have = tp.topic if _column(pushed) == "topic" else tp.partition
    return _TESTS[type(pushed)](have, pushed.value)  # type: ignore[attr-defined]


def _bounds(pushed: Filter) -> tuple[int, int, bool] | None:
    """Returns the lowest and highest offset that pass a filter, and whether all offsets in between pass.
    Returns None for a kind of filter that gives no such bounds."""
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


def _time_min_ms(pushed: Filter) -> int | None:
    """Returns the earliest timestamp, in milliseconds, that passes a filter; None if it sets no lower limit."""
    value = getattr(pushed, "value", None)
    if isinstance(pushed, In) and value and all(isinstance(item, datetime) for item in value):
        value = min(value, key=_microseconds)
    elif not isinstance(pushed, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
        return None
    if not isinstance(value, datetime):
        return None
    time_ms = _microseconds(value) // 1000
    return time_ms if time_ms >= 0 else None  # negative values are special timestamps of ListOffsets


def _microseconds(time: datetime) -> int:
    aware = time if time.tzinfo is not None else time.astimezone()
    gone = aware - _EPOCH
    return (gone.days * 86_400 + gone.seconds) * 1_000_000 + gone.microseconds
