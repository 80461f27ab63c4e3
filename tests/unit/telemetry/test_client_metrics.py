"""Metrics pushed by clients: valid names and labels, bounded, and never mixed up."""

from typing import Any

import pytest

from penstock.foundation.steps import run_steps
from penstock.telemetry.client_metrics import (
    SERIES_PER_CLIENT_MAX,
    ClientMetrics,
    NamedPoints,
    group_by_name,
    shown_labels,
    shown_name,
)
from penstock.telemetry.otlp import Point

ME, YOU = b"a" * 16, b"b" * 16


def gauge(name: str, value: float = 1.0, **labels: str) -> Point:
    return Point(name, tuple(labels.items()), value, False, False)


def counter(name: str, value: float, *, is_delta: bool = False, **labels: str) -> Point:
    return Point(name, tuple(labels.items()), value, True, is_delta)


def drafts(*points: Point) -> dict[str, NamedPoints]:
    return run_steps(group_by_name(points))


def shown(collected: ClientMetrics) -> dict[str, Any]:
    return {
        name: sorted((client, labels, value) for client, labels, value in family.samples())
        for name, family in collected.families.items()
    }


@pytest.mark.parametrize(
    ("name", "is_counter", "found"),
    [
        ("org.apache.kafka.producer.record.send.rate", False, "penstock_client_producer_record_send_rate"),
        ("org.apache.kafka.producer.record.send.total", True, "penstock_client_producer_record_send_total"),
        ("my.sends", True, "penstock_client_my_sends_total"),
        ('a{b="c"} 7\nx', False, "penstock_client_a_b_c_7_x"),
        ("ä", False, "penstock_client_"),
    ],
)
def test_names_are_legal_and_cannot_be_taken_for_the_brokers_own(name: str, is_counter: bool, found: str) -> None:
    assert shown_name(name, is_counter) == found


def test_labels_are_legal_and_the_brokers_own_are_not_overwritten() -> None:
    labels = (("client.id", "x"), ("client_instance_id", "x"), ("node-id", "1"), ("9", "nine"), ("__name__", "y"))
    assert shown_labels(labels) == (("_9", "nine"), ("name", "y"), ("node_id", "1"))


def test_a_push_replaces_what_the_client_pushed_before_and_nothing_else() -> None:
    collected = ClientMetrics()
    collected.replace(ME, drafts(gauge("a", 1, topic="t"), gauge("a", 2, topic="u"), gauge("b")), 100)
    collected.replace(YOU, drafts(gauge("a", 5)), 100)
    collected.replace(ME, drafts(gauge("a", 3, topic="t")), 100)
    assert shown(collected) == {
        "penstock_client_a": [(ME, (("topic", "t"),), 3.0), (YOU, (), 5.0)],
    }
    assert collected.series == 2
    collected.forget(ME)
    collected.forget(ME)
    assert shown(collected) == {"penstock_client_a": [(YOU, (), 5.0)]}
    collected.forget(YOU)
    assert (collected.families, collected.series, collected.dropped) == ({}, 0, 0)


def test_delta_values_are_summed_and_cumulative_values_replace() -> None:
    collected = ClientMetrics()
    for value in (5, 2, 3):
        collected.replace(ME, drafts(counter("d", value, is_delta=True), counter("t", value)), 100)
    assert shown(collected) == {
        "penstock_client_d_total": [(ME, (), 10.0)],
        "penstock_client_t_total": [(ME, (), 3.0)],
    }


def test_a_name_has_one_kind() -> None:
    collected = ClientMetrics()
    collected.replace(ME, drafts(counter("a", 1)), 100)
    collected.replace(YOU, drafts(gauge("a.total", 9), gauge("b", 1)), 100)
    assert shown(collected) == {
        "penstock_client_a_total": [(ME, (), 1.0)],
        "penstock_client_b": [(YOU, (), 1.0)],
    }
    assert collected.dropped == 1
    assert drafts(counter("a", 1), gauge("a.total", 9))["penstock_client_a_total"].is_counter


def test_the_name_that_describes_clients_is_the_brokers() -> None:
    assert drafts(gauge("info"), gauge("..")) == {}


def test_only_so_many_values_are_kept_of_one_client_and_of_all() -> None:
    collected = ClientMetrics()
    many = drafts(*(gauge("a", number, label=str(number)) for number in range(SERIES_PER_CLIENT_MAX + 5)))
    collected.replace(ME, many, 2 * SERIES_PER_CLIENT_MAX - 10)
    assert (collected.series, collected.dropped) == (SERIES_PER_CLIENT_MAX, 5)
    collected.replace(YOU, many, 2 * SERIES_PER_CLIENT_MAX - 10)
    assert (collected.series, collected.dropped) == (2 * SERIES_PER_CLIENT_MAX - 10, 5 + 15)
    collected.replace(ME, many, 2 * SERIES_PER_CLIENT_MAX - 10)
    assert collected.series == 2 * SERIES_PER_CLIENT_MAX - 10, "a client's own values make room for its next ones"
    collected.replace(ME, many, 0)
    assert shown(collected).keys() == {"penstock_client_a"}
    assert collected.series == SERIES_PER_CLIENT_MAX - 10
