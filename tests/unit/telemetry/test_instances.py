"""Client instances: when a client may get subscriptions and push, and when it expires."""

from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.foundation.ids import uuid_text
from penstock.telemetry.instances import KEPT_S_MIN, ClientInstances, Instance
from penstock.telemetry.subscriptions import Client

ID, OTHER = b"a" * 16, b"b" * 16
EVERY_10_S = {"mine": {"metrics": "*", "interval.ms": "10000"}}


class Lab:
    """Instances with subscriptions, and those that have expired."""

    def __init__(self, subscriptions: dict[str, dict[str, str]] | None = None) -> None:
        self.forgotten: list[bytes] = []
        self.instances = ClientInstances(self.forgotten.append)
        self.instances.apply(EVERY_10_S if subscriptions is None else subscriptions)

    def find_or_create(self, now_s: float, instance_id: bytes = ID, peer: str = "/1:1") -> Instance:
        return self.instances.find_or_create(
            instance_id, peer, lambda found: Client(uuid_text(found), "c", None, None, "1", "1"), now_s
        )

    def ask(self, now_s: float) -> ErrorCode:
        return _code(lambda: self.find_or_create(now_s).ask(now_s))

    def push(self, now_s: float, **how: Any) -> ErrorCode:
        instance = self.find_or_create(now_s)
        given = {
            "subscription_id": instance.subscription_id,
            "compression": 0,
            "size": 10,
            "size_max": 100,
            "terminating": False,
        }
        return _code(lambda: instance.push(now_s, **{**given, **how}))


def _code(action: Any) -> ErrorCode:
    try:
        action()
    except PenstockError as error:
        return error.code
    return ErrorCode.NONE


def test_a_client_asks_once_and_pushes_once_per_interval() -> None:
    lab = Lab()
    assert lab.ask(0) == ErrorCode.NONE
    assert lab.ask(9.9) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert lab.push(5) == ErrorCode.NONE, "the first push may come after half an interval"
    assert lab.push(14.9) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert lab.push(15) == ErrorCode.NONE
    assert lab.ask(24.9) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert lab.ask(25) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size": 101}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_a_wrong_push_is_refused_and_the_client_may_ask_again_at_once_where_that_helps(
    how: dict[str, int], code: ErrorCode
) -> None:
    lab = Lab()
    assert lab.ask(0) == ErrorCode.NONE
    assert lab.push(1, **how) == code
    helps = code in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    assert lab.ask(1) == (ErrorCode.NONE if helps else ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def test_a_client_that_terminates_may_push_early_and_never_again() -> None:
    lab = Lab()
    assert lab.push(0) == ErrorCode.NONE
    assert lab.push(1, terminating=True) == ErrorCode.NONE
    assert lab.push(30) == ErrorCode.INVALID_REQUEST


def test_when_subscriptions_change_the_next_push_fails_and_the_client_may_ask_at_once() -> None:
    lab = Lab()
    assert lab.ask(0) == ErrorCode.NONE
    before = lab.find_or_create(0).subscription_id
    lab.instances.apply({"mine": {"metrics": "org.a.", "interval.ms": "10000"}})
    assert lab.push(5, subscription_id=before) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert lab.ask(5) == ErrorCode.NONE
    assert lab.find_or_create(5).wanted.metrics == ("org.a.",)
    assert lab.push(6) == ErrorCode.NONE
    lab.instances.apply({})
    assert lab.ask(7) == ErrorCode.NONE, "a change is returned at once"
    assert lab.find_or_create(7).wanted.metrics == ()
    lab.instances.disconnect("/1:1")
    assert (len(lab.instances), lab.forgotten) == (0, [ID])


def test_every_broker_gives_the_same_subscription_id_and_every_client_another() -> None:
    one, two = Lab(), Lab()
    assert one.find_or_create(0).subscription_id == two.find_or_create(7, peer="/2:2").subscription_id
    assert one.find_or_create(0, OTHER, "/3:3").subscription_id != one.find_or_create(0).subscription_id
    assert -(2**31) <= one.find_or_create(0).subscription_id < 2**31


def test_a_client_is_forgotten_with_the_connection_that_it_last_used() -> None:
    lab = Lab()
    lab.find_or_create(0, peer="/1:1")
    lab.find_or_create(1, peer="/2:2")
    lab.instances.disconnect("/1:1")
    assert len(lab.instances) == 1
    lab.instances.disconnect("/2:2")
    assert (len(lab.instances), lab.forgotten) == (0, [ID])


def test_a_connection_has_one_instance_however_many_ids_it_makes_up() -> None:
    lab = Lab()
    for number in range(1, 1001):
        lab.find_or_create(0, number.to_bytes(16, "little"))
    assert len(lab.instances) == 1
    assert len(lab.forgotten) == 999


def test_a_silent_client_is_forgotten_after_three_intervals_and_a_minute_at_least() -> None:
    lab = Lab({"mine": {"metrics": "*", "interval.ms": "60000"}})
    lab.find_or_create(0)
    lab.instances.expire(179)
    assert len(lab.instances) == 1
    lab.instances.expire(180)
    assert lab.forgotten == [ID]
    brief = Lab({"mine": {"metrics": "*", "interval.ms": "100"}})
    brief.find_or_create(0)
    brief.instances.expire(KEPT_S_MIN - 1)
    assert len(brief.instances) == 1
    brief.instances.expire(KEPT_S_MIN)
    assert len(brief.instances) == 0


@pytest.mark.parametrize("instance_id", [bytes(16), bytes(15) + b"\x01"])
def test_an_id_that_no_client_can_have_is_refused(instance_id: bytes) -> None:
    with pytest.raises(InvalidRequest, match="is reserved"):
        Lab().find_or_create(0, instance_id)


def test_a_new_id_is_of_no_other_client() -> None:
    lab = Lab()
    assert len({lab.instances.new_id() for _ in range(100)}) == 100
