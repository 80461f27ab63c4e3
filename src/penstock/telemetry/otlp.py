"""Parser of OpenTelemetry metrics (OTLP MetricsData v1 in protobuf), as Kafka clients push them. Pure.

Only gauges and sums with their attributes are parsed, which is what Kafka's clients send. Histograms and summaries
are counted and skipped. The input is not trusted: lengths are checked against the bytes present.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from penstock.foundation.errors import InvalidRecord
from penstock.foundation.steps import Steps

ATTRIBUTES_MAX: Final = 8
"""Maximum number of attributes of one data point; Kafka's clients use up to three."""
TEXT_CHARS_MAX: Final = 255
"""Maximum number of characters of a metric name, an attribute name or an attribute value."""
_FIELDS_MAX: Final = 64
"""Maximum number of protobuf fields of a data point, an attribute, or the resource."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GAUGE, _SUM, _HISTOGRAM, _EXPONENTIAL, _SUMMARY = _BODIES = (5, 7, 9, 10, 11)  # field numbers of Metric.data
_DELTA: Final = 1
_DOUBLE: Final = struct.Struct("<d")
_SIGNED: Final = struct.Struct("<q")
_VARINT_BITS_MAX: Final = 63

Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One data point: a value of a metric with its labels."""

    name: str
    labels: Labels
    value: float
    is_counter: bool
    is_delta: bool
    """Whether the value is the increase since the last push, and not a total."""


@dataclass(slots=True)
class Pushed:
    """The parsed content of one push."""

    resource: dict[str, str] = field(default_factory=dict)
    """Attributes of the client, such as its group id."""
    points: list[Point] = field(default_factory=list)
    skipped: int = 0
    """Number of skipped items: metrics of unsupported types, points without a value, points above the limit."""


class _Field(NamedTuple):
    number: int
    wire_type: int
    value: int
    """The number, if the field is a varint; else the position in the data where the field's value begins."""
    end: int
    """Position in the data after the field's value."""


def read_metrics(data: bytes, is_wanted: Callable[[str], bool], points_max: int) -> Steps[Pushed]:
    """Parses the data points of all metrics whose name `is_wanted`, at most `points_max`. Raises InvalidRecord.

    A generator that yields regularly, so that a large push does not block the event loop.
    """
    pushed = Pushed()
    for top in _fields(data, 0, len(data)):
        yield
        for found in _fields(data, top.value, top.end) if _is(top, 1) else ():
            yield
            if _is(found, 1):
                attributes = [each for each in _few_fields(data, found) if _is(each, 1)]
                pushed.resource.update(_read_attributes(data, attributes))
            elif _is(found, 2):
                for metric in _fields(data, found.value, found.end):
                    yield
                    if _is(metric, 2):
                        yield from _read_metric(data, metric, is_wanted, points_max, pushed)
    return pushed


def _read_metric(
    data: bytes, metric: _Field, is_wanted: Callable[[str], bool], points_max: int, pushed: Pushed
) -> Steps[None]:
    name = ""
    body: _Field | None = None
    for found in _fields(data, metric.value, metric.end):
        yield
        if _is(found, 1):
            name = _text(data, found)
        elif found.wire_type == _BYTES and found.number in _BODIES:
            body = found
    if body is None or not name or not is_wanted(name):
        return
    if body.number not in (_GAUGE, _SUM):
        pushed.skipped += 1
        return
    points: list[_Field] = []
    is_delta = is_counter = False
    for found in _fields(data, body.value, body.end):
        yield
        if _is(found, 1) and len(points) < points_max - len(pushed.points):
            points.append(found)
        elif _is(found, 1):
            pushed.skipped += 1
        elif body.number == _SUM and found.wire_type == _VARINT and found.number == 2:
            is_delta = found.value == _DELTA
        elif body.number == _SUM and found.wire_type == _VARINT and found.number == 3:
            is_counter = bool(found.value)
    for each in points:
        yield
        read = _read_point(data, each, name, is_counter, is_delta)
        if read is None:
            pushed.skipped += 1
        else:
            pushed.points.append(read)


def _read_point(data: bytes, point: _Field, name: str, is_counter: bool, is_delta: bool) -> Point | None:
    """Parses one data point; returns None if it has no value."""
    value: float | None = None
    attributes = []
    for found in _few_fields(data, point):
        if found.number == 4 and found.wire_type == _FIXED64:
            value = _DOUBLE.unpack_from(data, found.value)[0]
        elif found.number == 6 and found.wire_type == _FIXED64:
            value = float(_SIGNED.unpack_from(data, found.value)[0])
        elif _is(found, 7):
            attributes.append(found)
    if value is None:
        return None
    labels = tuple(sorted(_read_attributes(data, attributes).items()))
    return Point(name, labels, value, is_counter, is_delta)


def _read_attributes(data: bytes, attributes: list[_Field]) -> dict[str, str]:
    """Parses at most ATTRIBUTES_MAX attributes (KeyValue messages); skips values that are lists or maps."""
    read: dict[str, str] = {}
    for attribute in attributes[:ATTRIBUTES_MAX]:
        key, value = "", None
        for found in _few_fields(data, attribute):
            if _is(found, 1):
                key = _text(data, found)
            elif _is(found, 2):
                value = _read_value(data, found)
        if key and value is not None:
            read[key] = value
    return read


def _read_value(data: bytes, value: _Field) -> str | None:
    read: str | None = None
    for found in _few_fields(data, value):
        if _is(found, 1):
            read = _text(data, found)
        elif found.number == 2 and found.wire_type == _VARINT:
            read = "true" if found.value else "false"
        elif found.number == 3 and found.wire_type == _VARINT:
            read = str(found.value - (1 << 64) if found.value >= 1 << 63 else found.value)
        elif found.number == 4 and found.wire_type == _FIXED64:
            read = repr(_DOUBLE.unpack_from(data, found.value)[0])
    return read


def _is(found: _Field, number: int) -> bool:
    """Whether a field has this field number and is length-delimited (text, bytes or a message)."""
    return found.number == number and found.wire_type == _BYTES


def _few_fields(data: bytes, message: _Field) -> list[_Field]:
    """Returns the list of all fields of a small message. Raises InvalidRecord if there are more than _FIELDS_MAX."""
    found = list(islice(_fields(data, message.value, message.end), _FIELDS_MAX + 1))
    if len(found) > _FIELDS_MAX:
        raise InvalidRecord(f"metrics are malformed: more than {_FIELDS_MAX} fields in a data point or attribute")
    return found


def _text(data: bytes, found: _Field) -> str:
    # Truncated before decoding: a character has four bytes at most.
    cut = data[found.value : min(found.end, found.value + 4 * TEXT_CHARS_MAX)]
    return cut.decode(errors="replace")[:TEXT_CHARS_MAX]


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """Yields the fields of the message from position `at` to `end` (exclusive). Raises InvalidRecord if the
    message is truncated or malformed."""
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise InvalidRecord("metrics are malformed: a field has the number 0")
        if wire_type == _VARINT:
            value, at = _varint(data, at, end)
            yield _Field(number, wire_type, value, at)
        elif wire_type == _BYTES:
            size, at = _varint(data, at, end)
            if size > end - at:
                raise InvalidRecord(f"metrics are malformed: a field of {size} bytes where {end - at} are left")
            yield _Field(number, wire_type, at, at + size)
            at += size
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
            if size > end - at:
                raise InvalidRecord("metrics are malformed: they end within a number")
            yield _Field(number, wire_type, at, at + size)
            at += size
        else:
            raise InvalidRecord(f"metrics are malformed: unknown wire type {wire_type}")


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Decodes the varint at position `at`; returns its value and the position after it."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > _VARINT_BITS_MAX:
            break
    raise InvalidRecord("metrics are malformed: a number is cut off or too long")
