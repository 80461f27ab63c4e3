"""Delegation tokens in the store and in the image: their limits, lifetimes and removal."""

import asyncio
import hashlib
import hmac
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cluster import keys, token_changes, token_registry
from penstock.cluster.delegation_tokens import (
    DelegationToken,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokensDisabled,
    InvalidPrincipalType,
    check_principal,
)
from penstock.cluster.metadata import Metadata
from penstock.cluster.token_changes import REMOVED_AT_ONCE, plan_expiry, plan_removal, plan_renewal, plan_token
from penstock.cluster.token_registry import DelegationTokens, new_token_id
from penstock.coordination.store import ABSENT, Put
from penstock.foundation.delegation_settings import DelegationSettings
from penstock.foundation.errors import InvalidConfig, InvalidRequest, PolicyViolation

from .images import Table
from .test_metadata import followed, register, store_at

ANN, BOB, EVE = "User:ann", "User:bob", "User:eve"
NOW_MS = 1_000_000


def token(token_id: str = "one", owner: str = ANN, expires_ms: int = NOW_MS + 1000) -> DelegationToken:
    return DelegationToken(
        token_id=token_id,
        owner=owner,
        requester=owner,
        renewers=(BOB,),
        issued_ms=NOW_MS,
        expires_ms=expires_ms,
        max_ms=NOW_MS + 5000,
    )


@pytest.fixture
def table() -> Table:
    table = Table()
    table.transact(plan_token(table.image, token()))
    return table


def test_the_image_shows_tokens_until_they_are_removed(table: Table) -> None:
    assert table.image.delegation_tokens == {"one": token()}
    before = table.image
    table.transact(plan_expiry(table.image, "one", ANN, -1, NOW_MS))
    assert table.image.delegation_tokens == {}
    assert before.delegation_tokens == {"one": token()}


def test_the_store_has_no_secret_of_a_token(table: Table) -> None:
    (state,) = table.states.values()
    assert set(keys.decode(state.value)) == {"owner", "requester", "renewers", "issued_ms", "expires_ms", "max_ms"}


def test_a_renewal_extends_a_token_up_to_its_maximum(table: Table) -> None:
    for period_ms, expires_ms in ((2000, NOW_MS + 2000), (500, NOW_MS + 500), (2**63, NOW_MS + 5000)):
        table.transact(plan_renewal(table.image, "one", BOB, period_ms, NOW_MS))
        assert table.image.delegation_tokens["one"] == token(expires_ms=expires_ms)
    table.transact(plan_expiry(table.image, "one", BOB, 0, NOW_MS))
    assert table.image.delegation_tokens["one"].expires_ms == NOW_MS


def test_the_errors_come_in_the_order_of_kafka(table: Table) -> None:
    late_ms = NOW_MS + 1001
    with pytest.raises(DelegationTokenNotFound):
        plan_renewal(table.image, "two", EVE, 1, late_ms)
    with pytest.raises(DelegationTokenExpired):
        plan_renewal(table.image, "one", EVE, 1, late_ms)
    with pytest.raises(DelegationTokenOwnerMismatch):
        plan_renewal(table.image, "one", EVE, 1, NOW_MS)
    with pytest.raises(DelegationTokenNotFound):
        plan_expiry(table.image, "two", EVE, 1, late_ms)
    with pytest.raises(DelegationTokenOwnerMismatch):
        plan_expiry(table.image, "one", EVE, -1, late_ms)
    with pytest.raises(DelegationTokenExpired):
        plan_expiry(table.image, "one", ANN, 1, late_ms)
    assert plan_expiry(table.image, "one", ANN, -1, late_ms)


def test_a_token_expires_after_the_last_millisecond_of_its_life() -> None:
    assert [token().has_expired(NOW_MS + late_ms) for late_ms in (999, 1000, 1001)] == [False, False, True]
    assert replace(token(), max_ms=NOW_MS).has_expired(NOW_MS + 1)


def test_the_number_of_tokens_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_changes, "TOKENS_PER_OWNER_MAX", 3)
    monkeypatch.setattr(token_changes, "TOKENS_MAX", 5)
    table = Table()
    for number in range(3):
        table.transact(plan_token(table.image, token(f"a{number}")))
    with pytest.raises(PolicyViolation, match="User:ann has 3 delegation tokens, which is the limit"):
        plan_token(table.image, token("a3"))
    for number in range(2):
        table.transact(plan_token(table.image, token(f"b{number}", BOB)))
    with pytest.raises(PolicyViolation, match="there are 5 delegation tokens"):
        plan_token(table.image, token("e", EVE))
    # Tokens that have expired make room: for their owner, and for all.
    table.transact(plan_renewal(table.image, "b0", BOB, 0, NOW_MS - 1))
    with pytest.raises(PolicyViolation, match="User:ann has 3"):
        plan_token(table.image, token("a3"))
    table.transact(plan_token(table.image, token("e", EVE)))
    table.transact(plan_renewal(table.image, "a0", BOB, 0, NOW_MS - 1))
    table.transact(plan_token(table.image, token("a3")))
    assert set(table.image.delegation_tokens) == {"a1", "a2", "a3", "b1", "e"}


def test_a_token_has_a_limited_size() -> None:
    table = Table()
    large = replace(token(), renewers=("User:" + "x" * 4096,))
    with pytest.raises(InvalidRequest, match=r"the token has \d+ bytes, at most 4096; name fewer renewers"):
        plan_token(table.image, large)


def test_expired_tokens_are_removed_some_at_a_time() -> None:
    table = Table()
    for number in range(REMOVED_AT_ONCE + 10):
        table.transact(plan_token(table.image, token(f"a{number}", expires_ms=NOW_MS)))
    table.transact(plan_token(table.image, token("young")))
    removed = []
    while ops := plan_removal(table.image, NOW_MS + 1):
        removed.append(len(ops))
        table.transact(ops)
    assert removed == [REMOVED_AT_ONCE, 10]
    assert set(table.image.delegation_tokens) == {"young"}


@pytest.mark.parametrize("principal", ["Group:ops", "user:ann", "ann", "", ":ann"])
def test_only_users_have_tokens(principal: str) -> None:
    check_principal(ANN)
    with pytest.raises(InvalidPrincipalType, match="expected User:NAME"):
        check_principal(principal)


def test_ids_never_look_like_options() -> None:
    found = {new_token_id() for _ in range(1000)}
    assert len(found) == 1000
    assert all(len(each) == 22 and not each.startswith("-") for each in found)


# -- settings


def test_settings_have_kafkas_names_and_defaults() -> None:
    settings = DelegationSettings.parse({"delegation.token.master.key": "old"})
    assert (settings.secret_key, settings.max_lifetime_ms, settings.expiry_time_ms, settings.check_interval_s) == (
        "old",
        7 * 86_400_000,
        86_400_000,
        3600,
    )
    both = {"delegation.token.master.key": "old", "delegation.token.secret.key": "new"}
    assert DelegationSettings.parse(both).secret_key == "new"
    assert "new" not in repr(DelegationSettings.parse(both))
    with pytest.raises(InvalidConfig, match="expected a whole number at least 1"):
        DelegationSettings.parse({"delegation.token.expiry.time.ms": "0"})


# -- the registry of a broker


class ManualClock:
    def __init__(self) -> None:
        self.time_ms = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms

    def steady_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000


def registry(metadata: Metadata, clock: ManualClock, key: str = "secret") -> DelegationTokens:
    settings = DelegationSettings.parse({"delegation.token.secret.key": key})
    return DelegationTokens(settings, lambda: metadata, clock)


async def test_tokens_are_found_by_their_hmac_as_long_as_they_exist(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        tokens = registry(await followed(store), ManualClock())
        made = [await tokens.create(owner=ANN, requester=ANN, renewers=[], lifetime_ms=-1) for _ in range(3)]
        one, two, three = (tokens.hmac(each.token_id) for each in made)
        assert one == hmac.digest(b"secret", made[0].token_id.encode(), hashlib.sha512)
        assert (await tokens.renew(two, by=ANN, period_ms=5)).token_id == made[1].token_id
        await tokens.expire(two, by=ANN, period_ms=-1)
        assert (await tokens.renew(three, by=ANN, period_ms=5)).expires_ms == NOW_MS + 5
        for unknown in (two, bytes(64), b"", one[:63]):
            with pytest.raises(DelegationTokenNotFound):
                await tokens.renew(unknown, by=ANN, period_ms=5)


async def test_a_broker_without_the_secret_has_no_tokens(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        tokens = registry(await followed(store), ManualClock(), key="")
        assert not tokens.is_enabled
        for work in (
            tokens.create(owner=ANN, requester=ANN, renewers=[], lifetime_ms=-1),
            tokens.renew(b"x", by=ANN, period_ms=-1),
            tokens.expire(b"x", by=ANN, period_ms=-1),
        ):
            with pytest.raises(DelegationTokensDisabled, match=r"set delegation\.token\.secret\.key on all brokers"):
                await work


async def test_a_token_that_the_image_does_not_show_yet_is_read_from_the_store(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.transact([register(1), register(2)])
        metadata, clock = await followed(store), ManualClock()
        tokens = registry(metadata, clock)
        late = metadata.image
        made = await tokens.create(owner=ANN, requester=ANN, renewers=[], lifetime_ms=-1)
        clock.time_ms += 1
        renewed = await tokens.renew(tokens.hmac(made.token_id), by=ANN, period_ms=-1)
        metadata.image = late
        assert await tokens.current(made.token_id) == renewed
        assert await tokens.current("unknown") is None
        clock.time_ms = made.max_ms + 1
        assert await tokens.current(made.token_id) is None


async def test_a_request_waits_for_a_token_that_another_broker_has_just_created(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.transact([register(1), register(2)])
        tokens = registry(await followed(store), ManualClock())
        waiting = asyncio.create_task(tokens.renew(tokens.hmac("one"), by=BOB, period_ms=7))
        await asyncio.sleep(0)
        await store.transact([Put(keys.delegation_token("one"), token().dump(), ABSENT)])
        assert (await waiting).expires_ms == NOW_MS + 7


async def test_many_tokens_are_indexed_in_time_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_registry, "HMACS_AT_ONCE", 3)
    async with store_at(tmp_path) as store:
        for number in range(10):
            await store.transact([Put(keys.delegation_token(f"a{number}"), token().dump(), ABSENT)])
        tokens = registry(await followed(store), ManualClock())
        for number in reversed(range(10)):
            found = await tokens.expire(tokens.hmac(f"a{number}"), by=ANN, period_ms=-1)
            assert found.token_id == f"a{number}"
        with pytest.raises(DelegationTokenNotFound):
            await tokens.renew(tokens.hmac("a0"), by=ANN, period_ms=1)
