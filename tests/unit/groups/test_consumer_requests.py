"""Heartbeats with an invalid combination of fields."""

from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest

from .consumer_harness import ConsumerHarness

JOINS: dict[str, Any] = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ("a",)}


def _refused(member_id: str, epoch: int, owned: dict[str, list[int]] | None = None, **fields: Any) -> str:
    error = ConsumerHarness().refused(member_id, epoch, owned, **fields)
    assert isinstance(error, InvalidRequest)
    assert error.code == ErrorCode.INVALID_REQUEST
    return error.message


@pytest.mark.parametrize("member_id", ["", "  "])
@pytest.mark.parametrize("epoch", [0, 1, -1, -2])
def test_members_name_themselves_since_version_1(member_id: str, epoch: int) -> None:
    assert "member id" in _refused(member_id, epoch, {}, version=1, instance_id="i", **JOINS)


@pytest.mark.parametrize("epoch", [1, 7, -1])
def test_only_a_joining_member_may_have_no_id_in_version_0(epoch: int) -> None:
    assert "member id" in _refused("", epoch, version=0)


@pytest.mark.parametrize(
    ("field", "what"), [("group_id", "group id"), ("instance_id", "group.instance.id"), ("rack_id", "rack id")]
)
@pytest.mark.parametrize("value", ["", " "])
def test_strings_must_not_be_empty(field: str, what: str, value: str) -> None:
    assert what in _refused("m1", 0, {}, **JOINS, **{field: value})


def test_a_joining_member_sends_its_rebalance_timeout() -> None:
    assert "rebalance timeout" in _refused("m1", 0, {}, subscribed_topic_names=("a",))


@pytest.mark.parametrize("owned", [None, {"a": [0]}])
def test_a_joining_member_sends_an_empty_list_of_partitions(owned: dict[str, list[int]] | None) -> None:
    assert "must own no partitions" in _refused("m1", 0, owned, **JOINS)


def test_a_joining_member_sends_its_subscription() -> None:
    assert "subscribed topics" in _refused("m1", 0, {}, rebalance_timeout_ms=1000)


@pytest.mark.parametrize("fields", [{"subscribed_topic_names": ()}, {"subscribed_topic_regex": ""}])
def test_a_joining_member_may_send_an_empty_subscription(fields: dict[str, Any]) -> None:
    assert ConsumerHarness().beat("m1", 0, {}, rebalance_timeout_ms=1000, **fields).member_epoch == 1


def test_only_a_static_member_leaves_for_a_while() -> None:
    assert "group.instance.id" in _refused("m1", -2)


@pytest.mark.parametrize("epoch", [-3, -100])
def test_there_are_no_other_negative_epochs(epoch: int) -> None:
    assert f"member epoch {epoch}" in _refused("m1", epoch, instance_id="i")
