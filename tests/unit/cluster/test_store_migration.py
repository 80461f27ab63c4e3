"""Migrating a cluster to another store: all or nothing, however often it is interrupted."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

import pytest

from penstock.cluster import keys
from penstock.cluster.image import PartitionState
from penstock.cluster.registration import WrongCluster
from penstock.cluster.store_migration import CannotMigrate, Migration
from penstock.coordination.embedded import EmbeddedStore, Seal, StoreMoved
from penstock.coordination.store import ABSENT, Conflict, Op, Put, StoreUnavailable
from penstock.coordination.stores import open_embedded, open_store
from penstock.node import Address, Node, NodeSettings

from .nodes import Node as Member
from .sessions import Server, SessionStore

URL = "etcd://a:2379/penstock"
TOPIC_ID = b"\7" * 16
STATE = PartitionState(replicas=(1,), leader=1, leader_epoch=0, isr=(1,))
KEYS = 230
"""They take several transactions."""


class Breaking(SessionStore):
    """A connection that breaks at one of its transactions, before or after that has happened."""

    def __init__(self, server: Server, breaks_at: int, happens: bool) -> None:
        super().__init__(server)
        server.stores.append(self)
        self._left = breaks_at
        self._happens = happens

    async def transact(self, ops: Sequence[Op]) -> int:
        self._left -= 1
        if self._left < 0:
            self.is_connected = False
            if self._left == -1 and self._happens:
                self.server.transact(ops, self)
            raise StoreUnavailable("the connection is gone")
        return await super().transact(ops)


async def fill(folder: Path, cluster_id: str = "the-cluster") -> dict[str, bytes]:
    """A store as a broker leaves it; what of it must move."""
    store = await open_embedded(folder)
    await store.transact([Put(keys.CLUSTER, keys.encode({"cluster_id": cluster_id}), ABSENT)])
    moves = {keys.CLUSTER: keys.encode({"cluster_id": cluster_id})}
    partitions = {keys.partition(TOPIC_ID, number): STATE.dump() for number in range(KEYS)}
    left = iter(partitions.items())
    while some := list(islice(left, 100)):
        await store.transact([Put(key, value, ABSENT) for key, value in some])
    moves |= partitions
    await store.transact([Put(keys.broker(1), b"{}", ABSENT, leased=True)])
    await store.close()
    return moves


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[EmbeddedStore]:
    store = await open_embedded(folder, opens_sealed=True)
    try:
        yield store
    finally:
        await store.close()


async def migrate(folder: Path, target: SessionStore, url: str = URL) -> None:
    async with opened(folder) as source:
        await Migration(source, target, url).execute()


def values(server: Server) -> dict[str, bytes]:
    return {key: state.value for key, state in server.states.items()}


async def test_all_keys_move_but_those_that_are_leased(tmp_path: Path) -> None:
    moves, server = await fill(tmp_path), Server()
    counts: list[int] = []
    async with opened(tmp_path) as source:
        move = await Migration(source, server.session(), URL).execute(counts.append)
        assert await source.seal() == move.seal
    assert values(server) == moves
    assert not server.leases
    assert sum(counts) == len(moves)
    assert move.is_complete
    assert (move.cluster_id, move.count(keys.PARTITIONS), move.count(keys.TOPICS)) == ("the-cluster", KEYS, 0)


async def test_looking_changes_nothing(tmp_path: Path) -> None:
    moves, server = await fill(tmp_path), Server()
    async with opened(tmp_path) as source:
        move = await Migration(source, server.session(), URL).plan()
        assert await source.seal() is None
    assert (move.entries, len(move.missing), move.missing[-1]) == (moves, len(moves), keys.CLUSTER)
    assert not server.states
    await (await open_store("embedded", tmp_path, 10)).close()


async def test_a_store_that_was_moved_is_opened_by_no_broker(tmp_path: Path) -> None:
    await fill(tmp_path)
    await migrate(tmp_path, Server().session())
    with pytest.raises(StoreMoved, match=f"was moved to {URL}; start with --store {URL}"):
        await open_store("embedded", tmp_path, 10)
    here = Address(host="127.0.0.1", port=0)
    with pytest.raises(StoreMoved, match="was moved to"):
        await Node(NodeSettings(data_dir=tmp_path, listen=here, http=here)).start()


@pytest.mark.parametrize("happens", [False, True])
async def test_an_interrupted_migration_is_finished_by_the_next_run(tmp_path: Path, happens: bool) -> None:
    breaks_at, interrupted = 0, 0
    while True:
        folder, server = tmp_path / str(breaks_at), Server()
        moves = await fill(folder)
        try:
            await migrate(folder, Breaking(server, breaks_at, happens))
            break
        except StoreUnavailable:
            interrupted += 1
        # Sealed from the first write on, and no cluster before the last one.
        with pytest.raises(StoreMoved, match=f"is being moved to {URL}; finish that with"):
            await open_store("embedded", folder, 10)
        is_last = server.states.keys() == moves.keys()
        assert (keys.CLUSTER in server.states) == is_last
        assert is_last or not server.states or keys.MOVING in server.states
        await migrate(folder, server.session())
        assert values(server) == moves
        with pytest.raises(StoreMoved, match="was moved to"):
            await open_store("embedded", folder, 10)
        breaks_at += 1
    # The mark, three transactions of a hundred keys at most, and the last key.
    assert interrupted == 5


async def test_it_can_be_interrupted_over_and_over(tmp_path: Path) -> None:
    moves, server = await fill(tmp_path), Server()
    runs = 0
    while True:
        runs += 1
        try:
            await migrate(tmp_path, Breaking(server, 1, happens=runs % 2 == 0))
            break
        except StoreUnavailable:
            assert runs < 10
    assert values(server) == moves


async def test_a_migrated_cluster_is_migrated_once(tmp_path: Path) -> None:
    moves, server = await fill(tmp_path), Server()
    await migrate(tmp_path, server.session())
    await server.session().transact([Put("later", b"1", ABSENT)])
    async with opened(tmp_path) as source:
        move = await Migration(source, server.session(), URL).execute()
    assert move.is_complete
    assert values(server) == moves | {"later": b"1"}


async def test_no_broker_joins_a_store_that_is_being_moved_into(tmp_path: Path) -> None:
    await fill(tmp_path)
    server = Server()
    with pytest.raises(StoreUnavailable):
        await migrate(tmp_path, Breaking(server, 2, happens=False))
    stray = Member(server, 7)
    with pytest.raises(WrongCluster, match="is being moved into this store"):
        await stray.start()
    await stray.stop()
    assert keys.CLUSTER not in server.states


async def test_a_broker_that_makes_a_cluster_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    await fill(tmp_path)
    server = Server()

    class Late(SessionStore):
        async def transact(self, ops: Sequence[Op]) -> int:
            if keys.CLUSTER not in server.states:
                server.transact([Put(keys.CLUSTER, b'{"cluster_id":"other"}', ABSENT)], self)
            return await super().transact(ops)

    with pytest.raises(CannotMigrate, match="another process writes to") as refused:
        await migrate(tmp_path, Late(server))
    assert isinstance(refused.value.__cause__, Conflict)
    assert values(server) == {keys.CLUSTER: b'{"cluster_id":"other"}'}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (keys.CLUSTER, {"cluster_id": "other"}, "holds a cluster already"),
        (keys.CLUSTER, {"cluster_id": "the-cluster"}, "holds a cluster already"),
        ("something", 1, "is not empty"),
        (keys.MOVING, {"move_id": "other", "cluster_id": "other"}, "another cluster is being moved to"),
    ],
)
async def test_a_target_that_holds_something_is_refused_before_anything_is_sealed(
    tmp_path: Path, key: str, value: object, said: str
) -> None:
    await fill(tmp_path)
    server = Server()
    await server.session().transact([Put(key, keys.encode(value), ABSENT)])
    with pytest.raises(CannotMigrate, match=said):
        await migrate(tmp_path, server.session())
    assert list(server.states) == [key]
    await (await open_store("embedded", tmp_path, 10)).close()


async def test_an_unfinished_move_goes_to_no_other_place(tmp_path: Path) -> None:
    moves, server = await fill(tmp_path), Server()
    with pytest.raises(StoreUnavailable):
        await migrate(tmp_path, Breaking(server, 2, happens=False))
    with pytest.raises(CannotMigrate, match=f"is being moved to {URL}; finish that with --to {URL}"):
        await migrate(tmp_path, Server().session(), "etcd://elsewhere:2379/penstock")
    # Another address of the same place is that place.
    await migrate(tmp_path, server.session(), "etcd://b:2379/penstock")
    assert values(server) == moves
    with pytest.raises(CannotMigrate, match=f"was moved to {URL} already"):
        await migrate(tmp_path, Server().session(), "etcd://elsewhere:2379/penstock")


async def test_a_target_that_was_emptied_since_is_not_filled_again(tmp_path: Path) -> None:
    await fill(tmp_path)
    await migrate(tmp_path, Server().session())
    with pytest.raises(CannotMigrate, match="is missing there; restore that store"):
        await migrate(tmp_path, Server().session())


async def test_a_folder_without_a_cluster_has_nothing_to_move(tmp_path: Path) -> None:
    await (await open_embedded(tmp_path)).close()
    with pytest.raises(CannotMigrate, match="the data folder holds no cluster"):
        await migrate(tmp_path, Server().session())


async def test_something_else_than_was_written_is_noticed(tmp_path: Path) -> None:
    await fill(tmp_path)
    server = Server()
    with pytest.raises(StoreUnavailable):
        await migrate(tmp_path, Breaking(server, 2, happens=False))
    key = keys.partition(TOPIC_ID, 0)
    await server.session().transact([Put(key, b"changed", server.states[key].version)])
    with pytest.raises(CannotMigrate, match=f"holds another value than was written to it: {key}"):
        await migrate(tmp_path, server.session())


async def test_a_seal_outlives_the_process(tmp_path: Path) -> None:
    await fill(tmp_path)
    seal = Seal(url=URL, move_id="a-move")
    async with opened(tmp_path) as source:
        await source.put_seal(seal)
    async with opened(tmp_path) as source:
        assert await source.seal() == seal
