"""Metrics that clients push: no push blocks the event loop, and memory is bounded."""

import struct
import urllib.request
from collections.abc import Callable
from zlib import compress as deflate

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.records.compression import GZIP_WBITS
from tests.brokers import BrokerProcess
from tests.clients.raw import RawClient
from tests.clients.telemetry_raw import ask, push, subscribed
from tests.clients.waiting import wait_until
from tests.unit.telemetry.otlp_lab import gauge, metrics_data, point

from .probe import Probe

PUSH_BYTES = (1 << 20) - 1000


def field(number: int, data: bytes) -> bytes:
    """A text or a message as protobuf writes it."""
    size, length = len(data), b""
    while size >= 0x80:
        length += struct.pack("B", size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def metric(body: bytes) -> bytes:
    return field(1, field(2, field(2, field(1, b"a") + body)))


def filled(piece: bytes) -> bytes:
    return piece * (PUSH_BYTES // len(piece))


SHAPES = {
    "empty metrics": field(1, field(2, filled(b"\x12\x00"))),
    "empty resources": filled(b"\x0a\x00"),
    "empty points": metric(field(5, filled(b"\x0a\x00"))),
    "points with labels": metric(
        field(
            5, filled(field(1, b"\x21" + bytes(8) + field(7, field(1, b"k" * 20) + field(2, field(1, b"v" * 200)))))
        )
    ),
    "unknown fields of a sum": metric(field(7, filled(b"\x78\x00"))),
    "a label of a megabyte": metric(field(5, field(1, b"\x21" + bytes(8) + field(7, field(1, filled(b"x")))))),
}
EMPTY_MEMBER = deflate(b"", 9, GZIP_WBITS)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_push_of_any_shape_does_not_hold_the_loop(shape: str, target: BrokerProcess, probe: Probe) -> None:
    with subscribed(target, "all", metrics="*", interval_ms="100"), RawClient(target.address) as raw:
        subscription = ask(raw)
        with probe.watch(f"push of {shape}"):
            assert push(raw, subscription, SHAPES[shape]) == ErrorCode.NONE


def test_metrics_of_very_many_gzip_members_do_not_hold_the_loop(target: BrokerProcess, probe: Probe) -> None:
    with subscribed(target, "all", metrics="*", interval_ms="100"), RawClient(target.address) as raw:
        subscription = ask(raw)
        with probe.watch("push of gzip members"):
            assert push(raw, subscription, filled(EMPTY_MEMBER), compression_type=1) == ErrorCode.NONE


def test_as_many_values_as_may_be_are_shown_in_time_slices(own_target: Callable[..., BrokerProcess]) -> None:
    target = own_target()
    probe = Probe(target)
    clients = [RawClient(target.address) for _ in range(10)]
    pushed = metrics_data(
        gauge(f"metric.{number}", *(point(1.0, topic="t" * 200, number=str(each)) for each in range(20)))
        for number in range(100)
    )
    with subscribed(target, "all", metrics="*", interval_ms="100"), probe.watch("20,000 values of clients"):
        for raw in clients:
            assert push(raw, ask(raw), pushed) == ErrorCode.NONE
        assert target.metric("penstock_telemetry_series") == 20_000
        with urllib.request.urlopen(f"http://{target.http}/metrics", timeout=90) as answer:
            assert answer.read().count(b"\npenstock_client_metric_") == 20_000
        for raw in clients:
            raw.__exit__()
        wait_until(lambda: target.metric("penstock_telemetry_series") == 0, "they are forgotten")
