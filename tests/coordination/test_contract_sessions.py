"""The contract of every store: leased keys, sessions, and unreachable servers."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.coordination.store import ABSENT, Delete, Put, Store, StoreUnavailable

from .proxy import Proxy, proxy_to
from .servers import Ensemble
from .stores import Stores, Watched, put, sometime, until

HOLDER = Path(__file__).parent / "holder.py"
SHORT_TTL_S = 2.0


@asynccontextmanager
async def holder(stores: Stores, *keys: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that holds these keys; it is killed at the latest in the end."""
    command = [str(HOLDER), stores.url, str(stores.folder), str(SHORT_TTL_S), *keys]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"holding\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_leased_key_is_like_any_other_while_its_holder_lives(stores: Stores) -> None:
    async with stores.opened() as store:
        watched = Watched()
        await store.watch("", watched)
        await store.transact([Put("leased", b"1", ABSENT, leased=True), Put("kept", b"1", ABSENT)])
        found = await store.get("leased")
        assert found is not None
        await store.transact([Put("leased", b"2", found.version)])
        assert watched.values == {"leased": b"2", "kept": b"1"}
        found = await store.get("leased")
        assert found is not None
        await store.transact([Delete("leased", found.version)])
        assert watched.values == {"kept": b"1"}


async def test_a_store_that_is_closed_gives_its_leased_keys_up(stores: Stores) -> None:
    async with stores.opened(ttl_s=10) as store:
        ops = [Put("leased", b"1", ABSENT, leased=True), Put("changed", b"1", ABSENT, leased=True)]
        await store.transact([*ops, Put("kept", b"1", ABSENT)])
        found = await store.get("changed")
        assert found is not None
        await store.transact([Put("changed", b"2", found.version)])  # which leaves it leased
    async with stores.opened() as store:
        assert await store.get("leased") is None
        assert await store.get("changed") is None
        assert await store.get("kept") is not None
        await store.transact([Put("leased", b"1", ABSENT)])  # now it is not
    async with stores.opened() as store:
        assert await store.get("leased") is not None


async def test_the_keys_of_a_holder_that_is_killed_go(stores: Stores) -> None:
    if stores.kind == "embedded":
        async with holder(stores, "a", "b") as process:
            process.kill()
        async with stores.opened() as store:
            assert await store.get("a") is None
            assert await store.get("b") is None
        return
    async with stores.opened() as store:
        watched = Watched()
        await put(store, "kept", b"1")
        await store.watch("", watched)
        async with holder(stores, "a", "b") as process:
            await watched.shows({"a": b"held", "b": b"held", "kept": b"1"})
            process.kill()
            await watched.shows({"kept": b"1"})
        assert await store.get("a") is None


async def test_the_keys_of_a_holder_whose_event_loop_hangs_go(remote: Stores) -> None:
    """Its process lives, and so do the threads of its client library: they must not keep the session alive."""
    async with remote.opened() as store:
        watched = Watched()
        await store.watch("", watched)
        async with holder(remote, "a") as process:
            await watched.shows({"a": b"held"})
            process.send_signal(signal.SIGUSR1)
            await watched.shows({})
            assert process.returncode is None
            process.kill()


async def test_watchers_of_others_see_the_leased_keys_of_a_store_that_is_closed_go(remote: Stores) -> None:
    async with remote.opened() as watching:
        watched = Watched()
        await watching.watch("", watched)
        async with remote.opened(ttl_s=10) as store:
            await store.transact([Put("leased", b"1", ABSENT, leased=True)])
            await watched.shows({"leased": b"1"})
        await watched.shows({})


async def end_session(store: Store) -> None:
    """What an operator, or a clock that jumped, might do to it: the server knows the session no more."""
    if type(store).__name__ == "EtcdStore":
        from aetcd import rpc

        lease = store._session.lease  # type: ignore[attr-defined]
        await rpc.LeaseStub(store._client.channel).LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease))  # type: ignore[attr-defined]
        return
    from kazoo.client import KazooClient

    kazoo = store._client._kazoo  # type: ignore[attr-defined]

    def take_over_and_close() -> None:
        hosts = ",".join(f"{host}:{port}" for host, port in kazoo.hosts)
        other = KazooClient(hosts=hosts, client_id=kazoo.client_id)
        other.start()
        other.stop()
        other.close()

    await asyncio.to_thread(take_over_and_close)


async def test_a_session_that_is_lost_is_followed_by_another_one(remote: Stores) -> None:
    async with remote.opened(ttl_s=SHORT_TTL_S) as store, remote.opened() as other:
        watched, lost = Watched(), list[str]()
        await store.watch("", watched)
        store.on_session_lost.append(lambda: lost.append("lost"))
        await store.transact([Put("leased", b"1", ABSENT, leased=True), Put("kept", b"1", ABSENT)])
        await end_session(store)
        await until(lambda: lost, "the session is lost")
        await watched.shows({"kept": b"1"})
        await sometime(lambda: store.transact([Put("leased", b"2", ABSENT, leased=True)]))
        assert watched.values == {"kept": b"1", "leased": b"2"}
        assert store.is_connected
        await put(other, "more", b"1")
        await watched.shows({"kept": b"1", "leased": b"2", "more": b"1"})
        assert lost == ["lost"]
    async with remote.opened() as store:
        assert await store.get("leased") is None, "the new session held it, and is over"


# -- networks that lose something


def url_by(remote: Stores, port: int) -> str:
    """The same store, by way of another port."""
    root = remote.url.partition("://")[2].partition("/")[2]
    return f"{remote.kind}://127.0.0.1:{port}/{root}"


@asynccontextmanager
async def behind_a_proxy(remote: Stores, port: int) -> AsyncIterator[tuple[Proxy, Store, Store]]:
    """The proxy, the store behind it, and the same store without it."""
    async with proxy_to(port) as proxy, remote.opened() as direct:
        url = url_by(remote, proxy.port)
        async with remote.opened(url=url, ttl_s=10) as store:
            store._client.timeout_s = 1.0  # type: ignore[attr-defined] # opening it had all the time in the world
            yield proxy, store, direct


@pytest.fixture
def port(remote: Stores, shared: Callable[[str], Ensemble]) -> int:
    return shared(remote.kind).ports[0]


async def test_if_the_answer_is_lost_the_outcome_is_unknown(remote: Stores, port: int) -> None:
    async with behind_a_proxy(remote, port) as (proxy, store, direct):
        watched = Watched()
        await store.watch("", watched)
        proxy.loses_answers = True
        with pytest.raises(StoreUnavailable):
            await store.transact([Put("k", b"1", ABSENT)])
        found = await direct.get("k")
        assert found is not None, "it happened, though its response was lost"
        proxy.heal()
        await watched.shows({"k": b"1"})
        assert await sometime(lambda: store.get("k")) == found
        await sometime(lambda: put(store, "k", b"2"))
        assert watched.values == {"k": b"2"}


async def test_if_the_request_is_lost_nothing_happens_later(remote: Stores, port: int) -> None:
    async with behind_a_proxy(remote, port) as (proxy, store, direct):
        watched = Watched()
        await store.watch("", watched)
        proxy.loses_requests = True
        asked = store.transact([Put("k", b"1", ABSENT)]), store.get("k")
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
        proxy.heal()
        await sometime(lambda: put(store, "l", b"1"))
        assert await direct.get("k") is None
        assert watched.values == {"l": b"1"}


async def test_changes_during_a_lost_connection_are_delivered_when_it_is_back(remote: Stores, port: int) -> None:
    async with behind_a_proxy(remote, port) as (proxy, store, direct):
        watched, lost = Watched(), list[str]()
        store.on_session_lost.append(lambda: lost.append("lost"))
        await store.watch("", watched)
        await store.transact([Put("leased", b"1", ABSENT, leased=True)])
        versions = {key: await put(direct, key, b"1") for key in ("changed", "gone", "again")}
        await watched.until(lambda: len(watched.values) == 4, "all keys are seen")
        proxy.is_down = True
        proxy.cut()
        await until(lambda: not store.is_connected, "the store notices")
        asked = store.get("leased"), store.transact([Put("unsaid", b"1", ABSENT)]), store.watch("", Watched())
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
        await direct.transact([Delete("gone", versions["gone"]), Delete("again", versions["again"])])
        await put(direct, "changed", b"2")
        await put(direct, "again", b"2")
        proxy.heal()
        truth = {"leased": b"1", "changed": b"2", "again": b"2"}
        await watched.shows(truth)
        await until(lambda: store.is_connected, "the store is connected again")
        await put(direct, "gone", b"3")
        await watched.shows(truth | {"gone": b"3"})
        late = Watched()
        await sometime(lambda: store.watch("", late))
        assert late.values == watched.values
        assert lost == [], "the session has outlived it"
        assert await direct.get("unsaid") is None


async def test_a_server_that_is_not_there_is_not_waited_for_for_ever(remote: Stores, port: int) -> None:
    async with proxy_to(port) as proxy:
        proxy.is_down = True
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.5 s"):
            async with remote.opened(url=url_by(remote, proxy.port), timeout_s=0.5):
                pass


async def test_one_server_of_several_is_enough(remote: Stores, port: int) -> None:
    """The others are closed ports, or say nothing at all."""
    async with proxy_to(port) as dead, proxy_to(port) as silent, proxy_to(port) as alive:
        dead.is_down = True
        silent.loses_requests = True
        url = url_by(remote, dead.port).replace("/tests", f",127.0.0.1:{silent.port},127.0.0.1:{alive.port}/tests")
        async with remote.opened(url=url, timeout_s=20, ttl_s=3) as store:
            watched = Watched()
            await store.watch("", watched)
            await put(store, "k", b"1")
            assert watched.values == {"k": b"1"}
