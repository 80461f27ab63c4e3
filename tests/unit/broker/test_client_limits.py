"""Which quota applies to a client, and for how long one that exceeds it is throttled."""

from typing import Any

import pytest

from penstock.broker.client_limits import METERS_MAX, WINDOW_S, ClientQuotas, Meter
from penstock.cluster.client_quotas import CONSUMER_RATE, PRODUCER_RATE, REQUEST_PERCENTAGE, Quotas
from penstock.foundation.quota_entities import entity
from penstock.wire.keys import ApiKey
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

ANN, BOB = "User:ann", "User:bob"
ORDER = [
    entity(user="ann", client_id="c"),
    entity(user="ann", client_id=None),
    entity(user="ann"),
    entity(user=None, client_id="c"),
    entity(user=None, client_id=None),
    entity(user=None),
    entity(client_id="c"),
    entity(client_id=None),
]
"""Kafka's order of precedence."""


def rate_of(quotas: Quotas, principal: str = ANN, client_id: str = "c") -> float | None:
    limits = ClientQuotas(lambda: quotas).limits_of(principal, client_id)
    return None if limits is None or limits.produced is None else limits.produced.rate


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_strongest_quota_applies(first: int) -> None:
    quotas = {each: {PRODUCER_RATE: float(number)} for number, each in enumerate(ORDER, 1) if number > first}
    assert rate_of(quotas) == first + 1


def test_each_quota_is_found_by_itself() -> None:
    quotas = {entity(user="ann"): {CONSUMER_RATE: 1.0}, entity(client_id="c"): {PRODUCER_RATE: 2.0}}
    limits = ClientQuotas(lambda: quotas).limits_of(ANN, "c")
    assert limits is not None
    assert (limits.produced, limits.fetched) != (None, None)
    assert limits.produced is not None
    assert limits.produced.rate == 2
    assert limits.busy is None


def test_clients_without_a_quota_have_no_limits() -> None:
    assert rate_of({}) is None
    quotas = {entity(user="bob"): {PRODUCER_RATE: 1.0}}
    assert ClientQuotas(lambda: quotas).limits_of(ANN, "c") is None


def test_who_shares_a_meter() -> None:
    quotas = {entity(user="ann"): {PRODUCER_RATE: 1.0}, entity(user=None): {PRODUCER_RATE: 2.0}}
    of = ClientQuotas(lambda: quotas)
    ann, also_ann, bob, cat = (of.limits_of(*who) for who in ((ANN, "1"), (ANN, "2"), (BOB, "1"), ("User:cat", "1")))
    assert ann is not None
    assert also_ann is not None
    assert bob is not None
    assert cat is not None
    assert ann.produced is also_ann.produced
    assert bob.produced is not cat.produced


def test_a_change_keeps_what_was_taken() -> None:
    now: list[Quotas] = [{entity(user="ann"): {PRODUCER_RATE: 10.0}}]
    of = ClientQuotas(lambda: now[0])
    before = of.limits_of(ANN, "c")
    assert before is not None
    assert before.throttle_ms(ApiKey.PRODUCE, 200, None, 1000.0) == 10_001
    now[0] = {entity(user="ann"): {PRODUCER_RATE: 100.0}}
    after = of.limits_of(ANN, "c")
    assert after is not None
    assert after.throttle_ms(ApiKey.PRODUCE, 0, None, 1000.0) == 1001
    now[0] = {}
    assert of.limits_of(ANN, "c") is None


def test_the_number_of_meters_is_bounded() -> None:
    quotas = {entity(client_id=None): {PRODUCER_RATE: 10.0}}
    of = ClientQuotas(lambda: quotas)
    for number in range(METERS_MAX + 10):
        assert of.limits_of(ANN, str(number)) is not None
    assert len(of._meters) <= METERS_MAX


@pytest.mark.parametrize(("taken", "expected_ms"), [(100, 0), (101, 101), (150, 5001)])
def test_a_window_is_free(taken: int, expected_ms: int) -> None:
    assert WINDOW_S == 10
    meter = Meter(10)
    meter.take(taken, 1000.0)
    assert meter.debt_ms(1000.0) == expected_ms


def test_a_debt_is_refilled() -> None:
    meter = Meter(10)
    meter.take(120, 1000.0)
    assert meter.debt_ms(1001.0) == 1001
    assert meter.debt_ms(1002.0) == 0
    meter.take(100, 1_000_000.0)  # never more than a window is free
    assert meter.debt_ms(1_000_000.0) == 0
    meter.take(1, 1_000_000.0)
    assert meter.debt_ms(1_000_000.0) == 101


def fetched(*sizes: int) -> FetchResponse:
    parts: list[Any] = [
        PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=0,
            log_start_offset=0,
            aborted_transactions=None,
            records=bytes(size) if size else None,
        )
        for size in sizes
    ]
    return FetchResponse(throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=parts)])


def test_fetched_records_are_counted() -> None:
    quotas = {entity(user="ann"): {CONSUMER_RATE: 10.0}}
    limits = ClientQuotas(lambda: quotas).limits_of(ANN, "c")
    assert limits is not None
    assert limits.throttle_ms(ApiKey.FETCH, 1000, fetched(50, 0, 50), 1000.0) == 0
    assert limits.throttle_ms(ApiKey.FETCH, 1000, fetched(20), 1000.0) == 2001
    assert limits.throttle_ms(ApiKey.METADATA, 1000, None, 1000.0) == 0


def test_the_time_of_requests_throttles_for_a_second_at_most() -> None:
    quotas = {entity(user="ann"): {REQUEST_PERCENTAGE: 50.0}}
    limits = ClientQuotas(lambda: quotas).limits_of(ANN, "c")
    assert limits is not None
    assert limits.busy is not None
    limits.busy.take(5.25, 1000.0)
    assert limits.throttle_ms(ApiKey.METADATA, 0, None, 1000.0) == 501
    limits.busy.take(100, 1000.0)
    assert limits.throttle_ms(ApiKey.METADATA, 0, None, 1000.0) == 1000
