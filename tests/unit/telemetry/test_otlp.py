"""Decoding OpenTelemetry metrics: those of its own classes, and invalid ones."""

import math
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from penstock.foundation.errors import InvalidRecord
from penstock.foundation.steps import run_steps
from penstock.telemetry.otlp import ATTRIBUTES_MAX, TEXT_CHARS_MAX, Point, Pushed, read_metrics

from .otlp_lab import DELTA, counter, gauge, histogram, metrics_data, point

NAMES = st.text(min_size=1, max_size=20)
VALUES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))


def read(data: bytes, is_wanted: Callable[[str], bool] = lambda name: True, points_max: int = 1000) -> Pushed:
    return run_steps(read_metrics(data, is_wanted, points_max))


def test_gauges_and_sums_are_read_with_their_labels_and_what_the_client_says_of_itself() -> None:
    data = metrics_data(
        [
            gauge("a.rate", point(1.5, topic="t", partition=3), point(-2)),
            counter("b.total", point(7, is_retry=True)),
            counter("c.total", point(0.25), temporality=DELTA),
            counter("d", point(-1), is_monotonic=False),
        ],
        group_id="g",
        client_rack="r",
    )
    assert read(data) == Pushed(
        resource={"group_id": "g", "client_rack": "r"},
        points=[
            Point("a.rate", (("partition", "3"), ("topic", "t")), 1.5, False, False),
            Point("a.rate", (), -2.0, False, False),
            Point("b.total", (("is_retry", "true"),), 7.0, True, False),
            Point("c.total", (), 0.25, True, True),
            Point("d", (), -1.0, False, False),
        ],
    )


@given(st.lists(st.tuples(NAMES, VALUES, st.dictionaries(NAMES, NAMES, max_size=3)), max_size=5))
def test_everything_that_opentelemetry_writes_is_read(metrics: list[tuple[str, float, dict[str, str]]]) -> None:
    data = metrics_data([gauge(name, point(value, **labels)) for name, value, labels in metrics])
    assert read(data).points == [
        Point(name, tuple(sorted(labels.items())), float(value), False, False) for name, value, labels in metrics
    ]


def test_values_that_are_no_numbers_are_read_too() -> None:
    found = read(metrics_data([gauge("a", point(math.nan), point(math.inf))])).points
    assert math.isnan(found[0].value)
    assert found[1].value == math.inf


def test_unrequested_metrics_are_skipped_and_unsupported_ones_counted() -> None:
    data = metrics_data([gauge("a.1", point(1)), gauge("b.1", point(1)), histogram("a.2"), histogram("b.2")])
    found = read(data, lambda name: name.startswith("a."))
    assert [each.name for each in found.points] == ["a.1"]
    assert found.skipped == 1


def test_only_so_many_points_labels_and_characters_are_kept() -> None:
    many = {f"label{number:02}": "x" for number in range(ATTRIBUTES_MAX + 5)}
    data = metrics_data([gauge("ä" * 1000, *(point(number, **many) for number in range(5)))], about="y" * 1000)
    found = read(data, points_max=2)
    assert (len(found.points), found.skipped) == (2, 3)
    assert {len(each.labels) for each in found.points} == {ATTRIBUTES_MAX}
    assert found.points[0].name == "ä" * TEXT_CHARS_MAX
    assert found.resource == {"about": "y" * TEXT_CHARS_MAX}


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",  # a length is missing
        b"\x0a\x05abc",  # fewer bytes than it says
        b"\x0a\xff\xff\xff\xff\x0f",  # four gigabytes
        b"\x0b",  # a group, which was given up long ago
        b"\x00\x01",  # the field 0
        b"\x08" + b"\x80" * 11 + b"\x01",  # a number that does not end
        b"\x09\x01\x02",  # half a double
    ],
)
def test_malformed_metrics_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecord, match="malformed"):
        read(data)
    with pytest.raises(InvalidRecord, match="malformed"):
        read(b"\x0a" + bytes([len(data)]) + data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = read(data)
    except InvalidRecord:
        return
    assert len(found.points) <= len(data)


@given(st.data())
def test_damaged_metrics_are_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(metrics_data([gauge("a.rate", point(1.5, topic="t")), counter("b", point(7))], group_id="g"))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(whole))
    except InvalidRecord:
        return
    assert len(found.points) <= 2


def test_a_point_without_a_number_is_counted() -> None:
    data = MetricsData.FromString(metrics_data([gauge("a", point(1.0))]))
    data.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].ClearField("value")
    found = read(data.SerializeToString())
    assert (found.points, found.skipped) == ([], 1)


def test_there_are_breaks_in_metrics_of_any_shape() -> None:
    """Little of a megabyte of any contents is read between two breaks."""
    empty_metric = b"\x12\x00"
    scope = empty_metric * 20_000
    shapes = {
        "metrics": _wrapped(1, _wrapped(2, scope)),
        "resources": b"\x0a\x00" * 20_000,
        "names": _wrapped(1, _wrapped(2, _wrapped(2, b"\x0a\x00" * 20_000))),
        "fields": b"\x78\x00" * 20_000,
        "fields of a sum": _wrapped(1, _wrapped(2, _wrapped(2, b"\x0a\x01a" + _wrapped(7, b"\x78\x00" * 20_000)))),
        "points": _wrapped(1, _wrapped(2, _wrapped(2, b"\x0a\x01a" + _wrapped(5, b"\x0a\x00" * 20_000)))),
    }
    for shape, data in shapes.items():
        breaks = sum(1 for _ in read_metrics(data, lambda name: True, 1000))
        assert breaks >= 20_000, shape


def test_parsing_takes_breaks_after_few_bytes() -> None:
    many = b"\x78\x00" * 65
    attribute = _wrapped(7, _wrapped(2, many))
    for message in (many, _wrapped(7, many), attribute):
        gauge_of = _wrapped(5, _wrapped(1, message + b"\x21" + bytes(8)))
        with pytest.raises(InvalidRecord, match="more than 64 fields"):
            read(_wrapped(1, _wrapped(2, _wrapped(2, b"\x0a\x01a" + gauge_of))))
    with pytest.raises(InvalidRecord, match="more than 64 fields"):
        read(_wrapped(1, _wrapped(1, many)))


def _wrapped(number: int, data: bytes) -> bytes:
    size, length = len(data), b""
    while size >= 0x80:
        length += struct.pack("B", size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data
