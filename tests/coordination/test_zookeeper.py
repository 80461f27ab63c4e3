"""Behaviour of the ZooKeeper store only."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.coordination.store import ABSENT, Put, TransactionTooLarge

from .conftest import stores_of
from .proxy import proxy_to
from .servers import Ensemble
from .stores import Stores, Watched, put, sometime, until


@pytest.fixture
def zookeeper(shared: Callable[[str], Ensemble], tmp_path: Path) -> Stores:
    return stores_of("zookeeper", shared, tmp_path)


@asynccontextmanager
async def plain_client(ensemble: Ensemble) -> AsyncIterator[object]:
    """kazoo as it is, to look at the nodes."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=f"127.0.0.1:{ensemble.ports[0]}")
    await asyncio.to_thread(client.start)
    try:
        yield client
    finally:
        await asyncio.to_thread(client.stop)
        client.close()


async def test_keys_are_spread_over_a_fixed_number_of_parents(
    zookeeper: Stores, shared: Callable[[str], Ensemble]
) -> None:
    root = "/" + zookeeper.url.partition("://")[2].partition("/")[2]
    async with zookeeper.opened() as store, plain_client(shared("zookeeper")) as client:
        await store.transact([Put(f"topics/{number}", b"1", ABSENT) for number in range(1000)])
        buckets = await asyncio.to_thread(client.get_children, root)  # type: ignore[attr-defined]
        assert len(buckets) == 256
        sizes = [
            len(await asyncio.to_thread(client.get_children, f"{root}/{bucket}"))  # type: ignore[attr-defined]
            for bucket in buckets
        ]
        assert sum(sizes) == 1000
        assert max(sizes) < 30


async def test_many_may_open_a_new_store_at_once(zookeeper: Stores) -> None:
    async def open_and_write(number: int) -> None:
        async with zookeeper.opened() as store:
            await put(store, f"k/{number}", b"1")

    await asyncio.gather(*(open_and_write(number) for number in range(6)))
    async with zookeeper.opened() as store:
        watched = Watched()
        await store.watch("", watched)
        assert len(watched.values) == 6


async def test_a_transaction_that_servers_would_not_take_is_refused_before_it_is_sent(zookeeper: Stores) -> None:
    async with zookeeper.opened() as store:
        ops = [Put(f"k/{number}", bytes(100_000), ABSENT) for number in range(10)]
        with pytest.raises(TransactionTooLarge, match="ZooKeeper accepts 1000000 bytes in one transaction"):
            await store.transact(ops)
        assert await store.get("k/0") is None
        await store.transact(ops[:9])
        assert store.is_connected


async def test_a_topic_of_two_thousand_partitions_is_one_transaction(zookeeper: Stores) -> None:
    value = b'{"replicas":[1,2,3],"leader":1,"leader_epoch":0,"isr":[1,2,3],"adding":[],"removing":[]}'
    async with zookeeper.opened() as store:
        watched = Watched()
        await store.watch("", watched)
        await store.transact([Put(f"partitions/AAAAAAAAAAAAAAAAAAAAAA/{n}", value, ABSENT) for n in range(2000)])
        assert len(watched.values) == 2000


async def test_a_lost_connection_is_logged_once(
    zookeeper: Stores, shared: Callable[[str], Ensemble], caplog: pytest.LogCaptureFixture
) -> None:
    root = zookeeper.url.partition("://")[2].partition("/")[2]
    async with proxy_to(shared("zookeeper").ports[0]) as proxy:
        url = f"zookeeper://127.0.0.1:{proxy.port}/{root}"
        with caplog.at_level(logging.WARNING):
            async with zookeeper.opened(url=url, ttl_s=10) as store:
                proxy.is_down = True
                proxy.cut()
                await until(lambda: not store.is_connected, "the store notices")
                await until(lambda: proxy.refused > 3, "the store tries again and again")
                proxy.heal()
                await until(lambda: store.is_connected, "the store is connected again")
    said = [record.getMessage() for record in caplog.records if record.name.startswith(("penstock", "kazoo"))]
    assert [line.split()[0] for line in said] == ["store_disconnected"]  # asyncio may have a word on the proxy's end


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_connection_that_talks_nonsense_is_followed_by_another_one(
    zookeeper: Stores, shared: Callable[[str], Ensemble], caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo's thread ends then, without an error: it is started again."""
    root = zookeeper.url.partition("://")[2].partition("/")[2]
    async with proxy_to(shared("zookeeper").ports[0]) as proxy:
        url = f"zookeeper://127.0.0.1:{proxy.port}/{root}"
        async with zookeeper.opened(url=url, ttl_s=10) as store:
            watched, lost = Watched(), list[str]()
            store.on_session_lost.append(lambda: lost.append("lost"))
            await store.watch("", watched)
            with caplog.at_level(logging.CRITICAL):
                proxy.say(b"\0\0\0\2no")
                await until(lambda: lost, "the session is lost")
                await sometime(lambda: put(store, "k", b"1"))
            await watched.shows({"k": b"1"})
