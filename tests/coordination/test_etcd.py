"""Behaviour of the etcd store only."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.coordination.etcd import EtcdStore
from penstock.coordination.store import ABSENT, Delete, Put, StoreUnavailable, TransactionTooLarge

from .conftest import stores_of
from .proxy import proxy_to
from .servers import Ensemble, EtcdEnsemble
from .stores import Stores, Watched, put, until
from .test_contract_sessions import end_session


@pytest.fixture
def etcd(shared: Callable[[str], Ensemble], tmp_path: Path) -> Stores:
    return stores_of("etcd", shared, tmp_path)


async def test_a_transaction_with_too_many_operations_says_which_setting_to_raise(etcd: Stores) -> None:
    async with etcd.opened() as store:
        await store.transact([Put(f"k/{number}", b"1", ABSENT) for number in range(128)])
        with pytest.raises(TransactionTooLarge, match="larger --max-txn-ops"):
            await store.transact([Put(f"l/{number}", b"1", ABSENT) for number in range(129)])
        assert await store.get("l/0") is None
        assert store.is_connected


@pytest.mark.parametrize("size", [1_600_000, 3_000_000])
async def test_a_transaction_with_too_many_bytes_says_which_setting_to_raise(etcd: Stores, size: int) -> None:
    async with etcd.opened() as store:
        with pytest.raises(TransactionTooLarge, match="larger --max-request-bytes"):
            await store.transact([Put("k", bytes(size), ABSENT)])
        assert await store.get("k") is None
        assert store.is_connected


async def test_a_watch_goes_on_when_another_server_is_turned_to_at_the_moment_it_begins(
    etcd: Stores, shared: Callable[[str], Ensemble]
) -> None:
    root = etcd.url.partition("://")[2].partition("/")[2]
    server = f"127.0.0.1:{shared('etcd').ports[0]}"
    async with etcd.opened(url=f"etcd://{server},{server}/{root}") as store:
        assert isinstance(store, EtcdStore)
        watched = Watched()
        await store.watch("", watched)
        client, follower = store._client, store._follower
        for _ in range(5):
            call = follower._call
            client.fail_over_from(client.channel)
            await until(lambda call=call: follower._call is not call, "the watch begins again", pause_s=0)
        client.fail_over_from(client.channel)
        await put(store, "k", b"1")
        await watched.shows({"k": b"1"})


async def test_after_a_compaction_in_a_gap_there_is_a_new_snapshot(
    etcd: Stores, shared: Callable[[str], Ensemble]
) -> None:
    ensemble = shared("etcd")
    assert isinstance(ensemble, EtcdEnsemble)
    root = etcd.url.partition("://")[2].partition("/")[2]
    async with proxy_to(ensemble.ports[0]) as proxy:
        url = f"etcd://127.0.0.1:{proxy.port}/{root}"
        async with etcd.opened() as direct, etcd.opened(url=url, ttl_s=30) as store:
            watched = Watched()
            await put(store, "kept", b"1")
            gone = await put(store, "gone", b"1")
            await store.watch("", watched)
            proxy.is_down = True
            proxy.cut()
            await until(lambda: not store.is_connected, "the store notices")
            await direct.transact([Delete("gone", gone)])
            ensemble.compact(await direct.transact([Put("new", b"1", ABSENT)]))
            proxy.heal()
            await watched.shows({"kept": b"1", "new": b"1"})
            assert watched.snapshots == 2
            await until(lambda: store.is_connected, "the store is connected again")
            await put(store, "kept", b"2")
            assert watched.values == {"kept": b"2", "new": b"1"}
            assert watched.snapshots == 2


async def test_a_lease_of_an_expired_session_is_refused_and_the_next_session_takes_the_key(
    etcd: Stores,
) -> None:
    async with etcd.opened(ttl_s=60) as store:  # so that it is the transaction that finds out
        lost: list[str] = []
        store.on_session_lost.append(lambda: lost.append("lost"))
        await end_session(store)
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            await store.transact([Put("k", b"1", ABSENT, leased=True)])
        assert lost == ["lost"]
        assert await store.get("k") is None
        await store.transact([Put("k", b"1", ABSENT, leased=True)])
        assert lost == ["lost"]


async def test_stores_with_like_roots_keep_apart(etcd: Stores) -> None:
    async with etcd.opened() as store, etcd.opened(url=f"{etcd.url}0") as other:
        watched = Watched()
        await store.watch("", watched)
        await put(other, "k", b"1")
        await put(store, "l", b"1")
        assert watched.values == {"l": b"1"}
        assert await store.get("k") is None
