"""Changes of ACLs: how many there can be, and how they are split into transactions of the store."""

import pytest

from penstock.cluster import acl_changes, keys
from penstock.cluster.acl_changes import (
    ACLS_MAX,
    PATTERN_BYTES_MAX,
    PATTERNS_AT_ONCE,
    parts_of,
    plan_creation,
    plan_deletion,
)
from penstock.cluster.acls import dump_acls, read_acls
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import Delete, Put
from penstock.foundation.acls import (
    Acl,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.foundation.errors import PenstockError, PolicyViolation


def topic(name: str) -> Pattern:
    return Pattern(ResourceType.TOPIC, PatternType.LITERAL, name)


def acl(user: str = "ann", operation: Operation = Operation.READ) -> Acl:
    return Acl(f"User:{user}", "*", operation, Permission.ALLOW)


def image_of(acls: dict[Pattern, tuple[Acl, ...]]) -> ClusterImage:
    return ClusterImage(acls=acls)


def test_no_more_acls_fit_than_every_broker_can_hold() -> None:
    full = image_of({topic(f"t{number}"): (acl(),) for number in range(ACLS_MAX - 1)})
    failed: dict[Pattern, PenstockError] = {}
    wanted = {topic("new"): [acl()], topic("one-too-many"): [acl()], topic("t0"): [acl()]}
    ops = plan_creation(full, wanted, failed)
    assert [op.key for op in ops] == [keys.acls(topic("new")), keys.ACL_CHANGES]
    assert list(failed) == [topic("one-too-many")]
    assert isinstance(failed[topic("one-too-many")], PolicyViolation)
    assert "delete some, use prefixes" in str(failed[topic("one-too-many")])


def test_the_acls_of_one_pattern_fit_in_a_value_of_the_store() -> None:
    failed: dict[Pattern, PenstockError] = {}
    many = [acl("u" * 1000 + str(number)) for number in range(PATTERN_BYTES_MAX // 1000)]
    assert plan_creation(image_of({}), {topic("orders"): many}, failed) == []
    assert isinstance(failed[topic("orders")], PolicyViolation)


def test_what_is_there_already_is_not_written_again() -> None:
    failed: dict[Pattern, PenstockError] = {}
    known = image_of({topic("orders"): (acl(),)})
    assert plan_creation(known, {topic("orders"): [acl()]}, failed) == []
    (put, counter) = plan_creation(known, {topic("orders"): [acl(), acl("bob")]}, failed)
    assert isinstance(put, Put)
    assert set(read_acls(keys.decode(put.value))) == {acl(), acl("bob")}
    assert counter.key == keys.ACL_CHANGES
    assert failed == {}


def test_deleting_the_last_acl_of_a_pattern_deletes_its_key() -> None:
    known = image_of({topic("orders"): (acl(), acl("bob")), topic("stock"): (acl(),)})
    gone: dict[Pattern, set[Acl]] = {}
    wanted = {topic("orders"): {acl(), acl("carol")}, topic("stock"): {acl()}, topic("unknown"): {acl()}}
    put, delete, _ = plan_deletion(known, wanted, gone)
    assert isinstance(put, Put)
    assert put.value == dump_acls([acl("bob")])
    assert isinstance(delete, Delete)
    assert gone == {topic("orders"): {acl()}, topic("stock"): {acl()}}


@pytest.mark.parametrize(("count", "parts"), [(0, 0), (1, 1), (PATTERNS_AT_ONCE, 1), (PATTERNS_AT_ONCE + 1, 2)])
def test_many_patterns_are_changed_in_several_transactions(count: int, parts: int) -> None:
    wanted = {topic(f"t{number}"): [acl()] for number in range(count)}
    found = list(parts_of(image_of({}), wanted))
    assert len(found) == parts
    assert [pattern for part in found for pattern in part] == list(wanted)


def test_large_acls_are_changed_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "BYTES_AT_ONCE", 500)
    wanted = {topic(f"t{number}"): [acl("u" * 200)] for number in range(5)}
    assert [len(part) for part in parts_of(image_of({}), wanted)] == [2, 2, 1]
