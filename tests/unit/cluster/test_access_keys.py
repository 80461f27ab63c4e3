"""Access keys in the store and in the image: their limits, changes, and their end with their user."""

from dataclasses import replace

import pytest

from penstock.cluster import access_key_changes, keys
from penstock.cluster.access_key_changes import (
    find_key,
    plan_deletion,
    plan_deletion_of_all,
    plan_enabled,
    plan_key,
)
from penstock.cluster.access_keys import KEYS_PER_USER_MAX, StoredKey, check_account, check_patterns
from penstock.cluster.user_changes import UserChange, plan_user_changes
from penstock.coordination.store import Conflict, Put
from penstock.foundation.errors import InvalidRequest, PenstockError, PolicyViolation, ResourceNotFound
from penstock.foundation.scram import ScramCredential, ScramMechanism

from .images import Table

SHA_256, SHA_512 = ScramMechanism
CREDENTIAL = ScramCredential(salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096)


def key(name: str = "AKIA1", user: str = "orders", cipher: str = "c1") -> StoredKey:
    return StoredKey(access_key=name, user=user, secret="c2VjcmV0", cipher=cipher, queues=("orders-*",), created_ms=1)


@pytest.fixture
def table() -> Table:
    table = Table()
    table.transact(plan_key(table.image, key()))
    return table


def change_user(table: Table, change: UserChange) -> None:
    failed: dict[str, PenstockError] = {}
    table.transact(plan_user_changes(table.image, [change], failed))
    assert failed == {}


def test_the_image_has_the_keys_of_each_user(table: Table) -> None:
    table.transact(plan_key(table.image, key("AKIA2")))
    table.transact(plan_key(table.image, key("AKIA3", user="a/b ü")))
    assert table.image.access_keys == {
        "orders": (key(), key("AKIA2")),
        "a/b ü": (key("AKIA3", user="a/b ü"),),
    }
    assert find_key(table.image, "AKIA3").user == "a/b ü"


def test_a_key_is_disabled_enabled_and_deleted(table: Table) -> None:
    table.transact(plan_enabled(table.image, "AKIA1", False))
    assert table.image.access_keys == {"orders": (replace(key(), is_enabled=False),)}
    assert plan_enabled(table.image, "AKIA1", False) == []
    table.transact(plan_enabled(table.image, "AKIA1", True))
    assert table.image.access_keys == {"orders": (key(),)}
    table.transact(plan_deletion(table.image, "AKIA1"))
    assert table.image.access_keys == {}
    assert keys.access_keys("orders") not in table.states
    with pytest.raises(ResourceNotFound, match="there is no access key 'AKIA1'"):
        plan_deletion(table.image, "AKIA1")
    with pytest.raises(ResourceNotFound, match="user 'orders' has no access keys"):
        plan_deletion_of_all(table.image, "orders")


def test_keys_end_with_the_last_password_of_their_user(table: Table) -> None:
    change_user(table, UserChange(name="orders", set={SHA_256: CREDENTIAL, SHA_512: CREDENTIAL}))
    change_user(table, UserChange(name="orders", delete=frozenset({SHA_256})))
    assert table.image.access_keys == {"orders": (key(),)}
    change_user(table, UserChange(name="orders", delete=frozenset({SHA_512})))
    assert (table.image.users, table.image.access_keys) == ({}, {})


def test_a_user_without_access_keys_is_deleted(table: Table) -> None:
    change_user(table, UserChange(name="other", set={SHA_256: CREDENTIAL}))
    change_user(table, UserChange(name="other", delete=frozenset({SHA_256})))
    assert table.image.access_keys == {"orders": (key(),)}


def test_a_key_is_not_created_while_its_user_is_deleted(table: Table) -> None:
    change_user(table, UserChange(name="ann", set={SHA_256: CREDENTIAL}))
    planned = plan_key(table.image, key("AKIA2", user="ann"))
    change_user(table, UserChange(name="ann", delete=frozenset({SHA_256})))
    with pytest.raises(Conflict):
        table.transact(planned)


def test_the_number_of_keys_is_limited(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, KEYS_PER_USER_MAX):
        table.transact(plan_key(table.image, key(f"AKIAX{number}")))
    with pytest.raises(PolicyViolation, match="user 'orders' has 10 access keys"):
        plan_key(table.image, key("AKIA2"))
    plan_key(table.image, key("AKIA2", user="other"))
    monkeypatch.setattr(access_key_changes, "KEYS_MAX", KEYS_PER_USER_MAX)
    with pytest.raises(PolicyViolation, match="there are 10 access keys, which is the limit"):
        plan_key(table.image, key("AKIA2", user="other"))


def test_all_keys_are_encrypted_with_the_same_key(table: Table) -> None:
    with pytest.raises(PolicyViolation, match=r"encrypted with another sqs\.secret\.key"):
        plan_key(table.image, key("AKIA2", user="other", cipher="c2"))
    table.transact(plan_deletion_of_all(table.image, "orders"))
    plan_key(table.image, key("AKIA2", user="other", cipher="c2"))


def test_the_size_of_a_key_is_limited(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="give it fewer patterns"):
        plan_key(table.image, replace(key("AKIA2"), actions=("x" * 4096,)))


def test_a_counter_of_changes_protects_keys_that_are_created_again(table: Table) -> None:
    (_, counter) = plan_deletion(table.image, "AKIA1")
    assert isinstance(counter, Put)
    assert counter.key == keys.USER_CHANGES


@pytest.mark.parametrize("account", ["", "1", "11112222333a", "1111222233334", "\u0661" * 12])
def test_an_account_has_twelve_digits(account: str) -> None:
    with pytest.raises(InvalidRequest, match="expected 12 digits"):
        check_account(account)


@pytest.mark.parametrize("patterns", [[""], ["a\nb"], [""] * 4096, ["x" * 10] * 2000, ["é" * 4096]])
def test_wrong_patterns_are_refused(patterns: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="queues has"):
        check_patterns("queues", patterns)
