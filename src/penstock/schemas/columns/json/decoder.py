"""Decodes JSON payloads into an Arrow column, with a few Python operations per field and none per nested object.

Values have the types that Spark's `from_json` reads: a STRING column has the JSON text of a value that is not a
string, dates and times are ISO 8601 texts, binary is base64. A TIMESTAMP may also be a number since 1970:
milliseconds if it is above 100,000,000,000, else seconds.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from itertools import accumulate, chain, pairwise
from typing import Any, Final

import orjson
import pyarrow as pa

from penstock.schemas.columns.codec import Decoded

SECONDS_MAX: Final = 100_000_000_000
"""The largest number that is read as seconds since 1970 (the year 5138). Larger numbers are read as milliseconds."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT_MAX: Final = 2**53
_NONE: Final = type(None)
_NAMES: Final = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", _NONE: "null"}

Convert = Callable[[Any], Any]


class _Misfit(Exception):
    """A value that the column type cannot hold. `path` is completed while the exception passes nested values."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def __str__(self) -> str:
        return f"field {'.'.join(reversed(self.path))!r}: {self.reason}" if self.path else self.reason


class JsonDecoder:
    """Decodes JSON payloads into columns of one type. Ignores properties that the type does not have."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self._is_exact = _has_decimals(kind)

    def decode(self, payloads: pa.BinaryArray, header_bytes: int) -> Decoded:
        """Decodes each payload after its first `header_bytes` bytes. The JSON value `null` is a null element."""
        bad: dict[int, str] = {}
        values = list(self._parsed(payloads, header_bytes, bad))
        try:
            return Decoded(_build(values, self.type), bad)
        except (_Misfit, *_CONVERSION_ERRORS):
            pass  # some value does not fit: find the rows
        for row, value in enumerate(values):
            try:
                _check(value, self.type)
            except _Misfit as error:
                bad[row] = str(error)
                values[row] = None
        return Decoded(_build(values, self.type), bad)

    def _parsed(self, payloads: pa.BinaryArray, header_bytes: int, bad: dict[int, str]) -> Iterator[Any]:
        for row, payload in enumerate(_slices(payloads, header_bytes)):
            try:
                if payload is None:
                    yield None
                elif self._is_exact:
                    yield _parse_exactly(payload)
                else:
                    yield orjson.loads(payload)
            except (ValueError, RecursionError) as error:
                bad[row] = f"it is not JSON: {error}"
                yield None


def _slices(payloads: pa.BinaryArray, header_bytes: int) -> Iterator[memoryview | None]:
    """Yields each payload without its header; None if it is null."""
    _, offsets, data = payloads.buffers()
    if offsets is None:
        return
    ends = memoryview(offsets).cast("i")[payloads.offset : payloads.offset + len(payloads) + 1].tolist()
    view = memoryview(b"" if data is None else data)
    if not payloads.null_count:
        for start, end in pairwise(ends):
            yield view[start + header_bytes : end]
        return
    for (start, end), is_valid in zip(pairwise(ends), payloads.is_valid().to_pylist(), strict=True):
        yield view[start + header_bytes : end] if is_valid else None


def _parse_exactly(payload: memoryview) -> Any:
    """Parses JSON; numbers that are not integers become Decimal, so that no digit is lost."""
    orjson.loads(payload)  # stricter than the parser below, which accepts NaN and half surrogate pairs
    return json.loads(str(payload, "utf-8"), parse_float=Decimal)


def _has_decimals(kind: pa.DataType) -> bool:
    children = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_decimal(kind) or any(map(_has_decimals, children))


# -- columns


def _build(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Returns a column of parsed values. Raises _Misfit or one of _CONVERSION_ERRORS if one does not fit."""
    types = set(map(type, values))
    if pa.types.is_struct(kind):
        return _build_struct(values, types, kind)
    if pa.types.is_map(kind):
        return _build_map(values, types, kind)
    if pa.types.is_list(kind):
        return _build_list(values, types, kind)
    natural, convert = _leaf(kind)
    if not types <= natural:
        values = [None if value is None else convert(value) for value in values]
    return pa.array(values, kind)


def _build_struct(values: Sequence[Any], types: set[type], kind: pa.StructType) -> pa.Array:
    _check_types(types, dict)
    mask = None
    objects: Sequence[dict[str, Any]] = values
    if _NONE in types:
        mask = pa.array([value is None for value in values], pa.bool_())
        objects = [{} if value is None else value for value in values]
    columns = []
    for field in kind:
        name = field.name
        column = [value.get(name) for value in objects]
        if not field.nullable:
            missing = sum(value is None for value in column)
            if missing > (0 if mask is None else mask.true_count):
                raise _Misfit(f"{name!r} is missing")
        columns.append(_build(column, field.type))
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _build_list(values: Sequence[Any], types: set[type], kind: pa.ListType) -> pa.Array:
    _check_types(types, list)
    elements = _build_members(list(chain.from_iterable(value or () for value in values)), kind.value_field)
    return pa.ListArray.from_arrays(_offsets(values), elements, type=kind, mask=_mask(values, types))


def _build_map(values: Sequence[Any], types: set[type], kind: pa.MapType) -> pa.Array:
    _check_types(types, dict)
    keys = _build(list(chain.from_iterable(value or () for value in values)), kind.key_type)
    items = list(chain.from_iterable((value or {}).values() for value in values))
    members = _build_members(items, kind.item_field)
    return pa.MapArray.from_arrays(_offsets(values), keys, members, type=kind, mask=_mask(values, types))


def _build_members(values: list[Any], field: pa.Field) -> pa.Array:
    if not field.nullable and None in values:
        raise _Misfit("an element is null")
    return _build(values, field.type)


def _offsets(values: Sequence[Any]) -> pa.Array:
    return pa.array(accumulate((len(value or ()) for value in values), initial=0), pa.int32())


def _mask(values: Sequence[Any], types: set[type]) -> pa.Array | None:
    return pa.array([value is None for value in values], pa.bool_()) if _NONE in types else None


def _check_types(types: set[type], wanted: type) -> None:
    for found in types - {wanted, _NONE}:
        raise _Misfit(f"{_NAMES[wanted]} is expected, not {_NAMES.get(found, 'a number')}")


# -- the row that does not fit


def _check(value: Any, kind: pa.DataType) -> None:
    """Raises _Misfit, with the path of the field, if a parsed value does not fit a type."""
    if value is None:
        return
    if pa.types.is_struct(kind):
        _check_types({type(value)}, dict)
        for field in kind:
            _check_member(value.get(field.name), field, field.name)
    elif pa.types.is_map(kind):
        _check_types({type(value)}, dict)
        for key, item in value.items():
            _check_member(key, kind.key_field, key)
            _check_member(item, kind.item_field, key)
    elif pa.types.is_list(kind):
        _check_types({type(value)}, list)
        for number, item in enumerate(value):
            _check_member(item, kind.value_field, str(number))
    else:
        try:
            _build([value], kind)
        except _CONVERSION_ERRORS:
            raise _Misfit(f"{_show(value)} is not {_describe(kind)}") from None


def _check_member(value: Any, field: pa.Field, name: str) -> None:
    try:
        if value is None and not field.nullable:
            raise _Misfit("is missing or null, but required")
        _check(value, field.type)
    except _Misfit as error:
        error.path.append(name)
        raise


def _show(value: Any) -> str:
    text = orjson.dumps(value, default=str).decode(errors="replace")
    return text if len(text) <= 100 else f"{text[:100]}…"


def _describe(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return f"an integer of {kind.bit_width} bits"
    if pa.types.is_decimal(kind):
        return f"a DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "a time such as 2026-01-31T12:00:00Z"
    if pa.types.is_date(kind):
        return "a date such as 2026-01-31"
    if pa.types.is_binary(kind):
        return "a base64 text"
    return {"bool": "a boolean", "float": "a number", "double": "a number"}.get(str(kind), f"a {kind}")


# -- basic types: the parsed types that Arrow accepts unchanged, and a conversion for the others

_CONVERSION_ERRORS: Final = (
    *(ArithmeticError, TypeError, ValueError),
    *(InvalidOperation, binascii.Error, pa.ArrowException),
)


def _leaf(kind: pa.DataType) -> tuple[set[type], Convert]:
    """Returns which types of parsed values become a column of type `kind` as they are, and the conversion of others.

    Arrow itself is too lenient: it truncates 1.5 to an integer, and reads true as 1.0.
    """
    if pa.types.is_string(kind):
        return {str, _NONE}, _text
    if pa.types.is_integer(kind):
        return {int, _NONE}, _integer
    if pa.types.is_floating(kind):
        return {float, _NONE}, _number
    if pa.types.is_boolean(kind):
        return {bool, _NONE}, _boolean
    if pa.types.is_timestamp(kind):
        return {_NONE}, _naive_time if kind.tz is None else _time
    if pa.types.is_date(kind):
        return {_NONE}, _date
    if pa.types.is_decimal(kind):
        quantum = Decimal(1).scaleb(-kind.scale)
        return {_NONE}, lambda value: _decimal(value, quantum)
    if pa.types.is_binary(kind):
        return {_NONE}, _binary
    raise _Misfit(f"JSON has no values of type {kind}")


def _text(value: Any) -> str:
    return value if type(value) is str else orjson.dumps(value, default=str).decode()


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, float | Decimal):
        whole = int(value)
        if whole == value and abs(whole) <= _EXACT_MAX:
            return whole
    raise TypeError


def _number(value: Any) -> float:
    if type(value) is bool or not isinstance(value, int | float | Decimal):
        raise TypeError
    return float(value)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError
    return value


def _time(value: Any) -> datetime:
    if type(value) is str:
        found = datetime.fromisoformat(value)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    number = _number(value)
    if abs(number) > SECONDS_MAX:
        return _EPOCH + timedelta(milliseconds=value if type(value) is int else number)
    return _EPOCH + timedelta(seconds=value if type(value) is int else number)


def _naive_time(value: Any) -> datetime:
    """Returns a time without a zone; one that the text has is dropped, as in Spark."""
    if type(value) is not str:
        raise TypeError
    return datetime.fromisoformat(value).replace(tzinfo=None)


def _date(value: Any) -> date:
    if type(value) is not str:
        raise TypeError
    return date.fromisoformat(value)


def _decimal(value: Any, quantum: Decimal) -> Decimal:
    if type(value) is bool or not isinstance(value, int | Decimal | str):
        raise TypeError
    found = Decimal(value)
    return found.quantize(quantum) if found.is_finite() else Decimal(_number(value))


def _binary(value: Any) -> bytes:
    if type(value) is not str:
        raise TypeError
    return b64decode(value, validate=True)
