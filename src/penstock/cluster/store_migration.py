"""Moving a cluster from one broker's embedded store to a store of other machines, while no broker runs.

The old store is sealed first, so that no broker starts on it by mistake. The new one is no cluster before its last
key is there: until then a key says that it is being moved, and no broker joins. Whatever interrupts it, it goes on
from where it was when it is begun again.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.cluster import keys
from penstock.cluster.topic_changes import OPERATIONS_MAX
from penstock.coordination.embedded import EmbeddedStore, Seal
from penstock.coordination.store import ABSENT, Change, Check, Conflict, Delete, Put, Store, Versioned
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import uuid_text

TRANSACTION_BYTES_MAX: Final = 256 << 10
"""Far less than ZooKeeper's 1 MB and etcd's 1.5 MB: names and conditions come on top of values."""


class CannotMigrate(PenstockError):
    """The move would lose something, or mix two clusters. Nothing has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What is moved, and how far that is."""

    cluster_id: str
    entries: Mapping[str, bytes]
    """All keys that outlive a session."""
    missing: tuple[str, ...]
    """Those that are still to be written; the one that makes it a cluster is the last."""
    seal: Seal | None
    """What the old store says already."""

    @property
    def is_complete(self) -> bool:
        return not self.missing

    def count(self, room: str) -> int:
        """How many keys of a kind there are."""
        return sum(key.partition("/")[0] == room for key in self.entries)


class Migration:
    """From an embedded store, opened though it may be sealed, to a store that is empty or was begun on before.

    What is leased has no place in it: the old store has dropped that when it was opened.
    """

    def __init__(self, source: EmbeddedStore, target: Store, url: str) -> None:
        """`url`: the target's address, as brokers will be told."""
        self._source = source
        self._target = target
        self._url = url
        self._states: dict[str, Versioned] = {}
        self._follows = False

    async def look(self) -> Move:
        """What there is to do. CannotMigrate if it must not be done."""
        if not self._follows:
            await self._target.watch("", self._follow)
            self._follows = True
        entries = await _entries(self._source)
        seal = await self._source.seal()
        if keys.CLUSTER not in entries:
            raise CannotMigrate(
                f"there is no cluster in the data folder that could be moved; start a broker with --store {self._url}"
            )
        cluster_id = str(keys.decode(entries[keys.CLUSTER])["cluster_id"])
        if self._is_there(seal, cluster_id):
            return Move(cluster_id=cluster_id, entries=entries, missing=(), seal=seal)
        self._check_seal(seal)
        self._check_target(seal, entries)
        missing = [key for key in sorted(entries) if key not in self._states and key != keys.CLUSTER]
        return Move(cluster_id=cluster_id, entries=entries, missing=(*missing, keys.CLUSTER), seal=seal)

    async def execute(self, progress: Callable[[int], None] = lambda count: None) -> Move:
        """Do what there is to do. `progress`: so many more keys are written."""
        move = await self.look()
        seal = move.seal or Seal(url=self._url, move_id=uuid_text(secrets.token_bytes(16)))
        if not move.is_complete:
            await self._source.put_seal(seal)
            try:
                await self._write(move, seal.move_id, progress)
            except Conflict as conflict:
                raise CannotMigrate(
                    f"someone else writes to {self._url} ({conflict.key}); stop that, then run this again"
                ) from conflict
        done = replace(seal, is_done=True)
        if seal != done:
            await self._source.put_seal(done)
        return replace(move, missing=(), seal=done)

    async def _write(self, move: Move, move_id: str, progress: Callable[[int], None]) -> None:
        if keys.MOVING not in self._states:
            value = keys.encode({"move_id": move_id, "cluster_id": move.cluster_id})
            await self._target.transact([Put(keys.MOVING, value, ABSENT), Check(keys.CLUSTER, ABSENT)])
        for batch in _batches(move.missing[:-1], move.entries):
            await self._target.transact([Put(key, move.entries[key], ABSENT) for key in batch])
            progress(len(batch))
        self._check_whole(move)
        moving = self._states[keys.MOVING].version
        await self._target.transact(
            [Put(keys.CLUSTER, move.entries[keys.CLUSTER], ABSENT), Delete(keys.MOVING, moving)]
        )
        progress(1)

    def _check_whole(self, move: Move) -> None:
        """What the servers hold is what was to be moved, but for the last key."""
        written = {key: state.value for key, state in self._states.items() if key != keys.MOVING}
        if written | {keys.CLUSTER: move.entries[keys.CLUSTER]} != move.entries or keys.MOVING not in self._states:
            raise CannotMigrate(f"{self._url} does not hold what was written to it; does someone else write to it?")

    def _follow(self, change: Change) -> None:
        if change.snapshot:
            self._states.clear()
        for key, state in change.states.items():
            if state is None:
                self._states.pop(key, None)
            else:
                self._states[key] = state

    def _is_there(self, seal: Seal | None, cluster_id: str) -> bool:
        """Whether this cluster has been moved here already. Without a seal nobody has moved it."""
        found = self._states.get(keys.CLUSTER)
        return seal is not None and found is not None and keys.decode(found.value)["cluster_id"] == cluster_id

    def _check_seal(self, seal: Seal | None) -> None:
        """A store is moved to one place. Another address of that place will do."""
        if seal is None or seal.url == self._url:
            if seal is not None and seal.is_done:
                raise CannotMigrate(
                    f"the cluster was moved to {self._url} before, and is not there any more; bring that store back"
                )
            return
        if seal.is_done:
            raise CannotMigrate(f"the cluster was moved to {seal.url} already")
        if self._move_id() != seal.move_id:
            raise CannotMigrate(f"the cluster is being moved to {seal.url}; finish that with --to {seal.url}")

    def _check_target(self, seal: Seal | None, entries: Mapping[str, bytes]) -> None:
        """Nothing of anybody else's may be there."""
        if keys.CLUSTER in self._states:
            raise CannotMigrate(f"{self._url} holds a cluster already; give an address with another path")
        found = self._move_id()
        if found is None and self._states:
            raise CannotMigrate(
                f"{self._url} is not empty ({len(self._states)} keys, {min(self._states)} is one); "
                "give an address with another path"
            )
        if found is not None and (seal is None or found != seal.move_id):
            raise CannotMigrate(f"another cluster is being moved to {self._url}; give an address with another path")
        for key, state in self._states.items():
            if key != keys.MOVING and entries.get(key) != state.value:
                raise CannotMigrate(f"{self._url} holds something else than was written to it: {key}")

    def _move_id(self) -> str | None:
        """Which move was begun in the target."""
        found = self._states.get(keys.MOVING)
        return str(keys.decode(found.value)["move_id"]) if found is not None else None


async def _entries(source: EmbeddedStore) -> dict[str, bytes]:
    """All that the old store holds."""
    entries: dict[str, bytes] = {}

    def take(change: Change) -> None:
        entries.update({key: state.value for key, state in change.states.items() if state is not None})

    await source.watch("", take)
    return entries


def _batches(names: Sequence[str], entries: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Keys, as many at a time as a transaction may hold."""
    batch: list[str] = []
    size = 0
    for key in names:
        if batch and (len(batch) == OPERATIONS_MAX or size + len(entries[key]) > TRANSACTION_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(key)
        size += len(entries[key])
    if batch:
        yield batch
