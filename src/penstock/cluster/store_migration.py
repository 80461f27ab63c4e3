"""Migrates a cluster from the embedded store of one broker to ZooKeeper or etcd, while no broker runs.

The old store is sealed first, so that no broker starts on it by mistake. A marker key in the new store keeps brokers
from joining until all keys are written. To resume an interrupted migration, run it again.
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
"""Maximum bytes of all values in one transaction: far below ZooKeeper's limit of 1 MB and etcd's of 1.5 MB."""


class CannotMigrate(PenstockError):
    """The migration was refused: it would lose data or mix two clusters. Nothing has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """The keys to migrate, and the keys that the target still lacks."""

    cluster_id: str
    entries: Mapping[str, bytes]
    """The keys to migrate with their values: all keys of the old store that are not leased."""
    missing: tuple[str, ...]
    """Keys still to be written to the target; the last is the `cluster` key, which lets brokers join."""
    seal: Seal | None
    """The seal (mark of a started migration) of the old store; None if it is not sealed yet."""

    @property
    def is_complete(self) -> bool:
        return not self.missing

    def count(self, prefix: str) -> int:
        """Returns the number of keys to migrate that have this prefix, such as `topics`."""
        return sum(key.partition("/")[0] == prefix for key in self.entries)


class Migration:
    """Migrates an embedded store to an empty store, or resumes an interrupted migration.

    Leased keys are not migrated: the embedded store removed them when it was opened.
    """

    def __init__(self, source: EmbeddedStore, target: Store, url: str) -> None:
        """`url`: the address of the target store, as brokers will use it."""
        self._source = source
        self._target = target
        self._url = url
        self._states: dict[str, Versioned] = {}
        self._follows = False

    async def plan(self) -> MigrationPlan:
        """Returns the keys to migrate, and which of them the target lacks. Raises CannotMigrate if there is no
        cluster to migrate, if the target has other keys, or if the cluster was migrated to another store."""
        if not self._follows:
            await self._target.watch("", self._on_change)
            self._follows = True
        entries = await _read_entries(self._source)
        seal = await self._source.seal()
        if keys.CLUSTER not in entries:
            raise CannotMigrate(
                f"the data folder holds no cluster to migrate; start a broker with --store {self._url}"
            )
        cluster_id = str(keys.decode(entries[keys.CLUSTER])["cluster_id"])
        if self._is_migrated(seal, cluster_id):
            return MigrationPlan(cluster_id=cluster_id, entries=entries, missing=(), seal=seal)
        self._check_seal(seal)
        self._check_target(seal, entries)
        missing = [key for key in sorted(entries) if key not in self._states and key != keys.CLUSTER]
        return MigrationPlan(cluster_id=cluster_id, entries=entries, missing=(*missing, keys.CLUSTER), seal=seal)

    async def execute(self, progress: Callable[[int], None] = lambda count: None) -> MigrationPlan:
        """Migrates all missing keys. `progress` is called with the number of keys just written."""
        move = await self.plan()
        seal = move.seal or Seal(url=self._url, move_id=uuid_text(secrets.token_bytes(16)))
        if not move.is_complete:
            await self._source.put_seal(seal)
            try:
                await self._write(move, seal.move_id, progress)
            except Conflict as conflict:
                raise CannotMigrate(
                    f"another process writes to {self._url} ({conflict.key}); stop it, then run this again"
                ) from conflict
        done = replace(seal, is_done=True)
        if seal != done:
            await self._source.put_seal(done)
        return replace(move, missing=(), seal=done)

    async def _write(self, move: MigrationPlan, move_id: str, progress: Callable[[int], None]) -> None:
        if keys.MOVING not in self._states:
            value = keys.encode({"move_id": move_id, "cluster_id": move.cluster_id})
            await self._target.transact([Put(keys.MOVING, value, ABSENT), Check(keys.CLUSTER, ABSENT)])
        for batch in _batches(move.missing[:-1], move.entries):
            await self._target.transact([Put(key, move.entries[key], ABSENT) for key in batch])
            progress(len(batch))
        self._verify(move)
        moving = self._states[keys.MOVING].version
        await self._target.transact(
            [Put(keys.CLUSTER, move.entries[keys.CLUSTER], ABSENT), Delete(keys.MOVING, moving)]
        )
        progress(1)

    def _verify(self, move: MigrationPlan) -> None:
        """Raises CannotMigrate unless the target holds exactly the keys to migrate, apart from the `cluster` key."""
        written = {key: state.value for key, state in self._states.items() if key != keys.MOVING}
        if written | {keys.CLUSTER: move.entries[keys.CLUSTER]} != move.entries or keys.MOVING not in self._states:
            raise CannotMigrate(f"{self._url} lacks keys written to it; does another process write to it?")

    def _on_change(self, change: Change) -> None:
        if change.snapshot:
            self._states.clear()
        for key, state in change.states.items():
            if state is None:
                self._states.pop(key, None)
            else:
                self._states[key] = state

    def _is_migrated(self, seal: Seal | None, cluster_id: str) -> bool:
        """Whether the target already holds this cluster; False if no migration was started (`seal` is None)."""
        found = self._states.get(keys.CLUSTER)
        return seal is not None and found is not None and keys.decode(found.value)["cluster_id"] == cluster_id

    def _check_seal(self, seal: Seal | None) -> None:
        """Raises CannotMigrate if the old store is sealed for another target store; a changed address is allowed."""
        if seal is None or seal.url == self._url:
            if seal is not None and seal.is_done:
                raise CannotMigrate(
                    f"the cluster was moved to {self._url} before, but is missing there; restore that store"
                )
            return
        if seal.is_done:
            raise CannotMigrate(f"the cluster was moved to {seal.url} already")
        if self._move_id() != seal.move_id:
            raise CannotMigrate(f"the cluster is being moved to {seal.url}; finish that with --to {seal.url}")

    def _check_target(self, seal: Seal | None, entries: Mapping[str, bytes]) -> None:
        """Raises CannotMigrate if the target has keys of another cluster or migration."""
        if keys.CLUSTER in self._states:
            raise CannotMigrate(f"{self._url} holds a cluster already; use an address with another path")
        found = self._move_id()
        if found is None and self._states:
            raise CannotMigrate(
                f"{self._url} is not empty ({len(self._states)} keys, such as {min(self._states)}); "
                "use an address with another path"
            )
        if found is not None and (seal is None or found != seal.move_id):
            raise CannotMigrate(f"another cluster is being moved to {self._url}; use an address with another path")
        for key, state in self._states.items():
            if key != keys.MOVING and entries.get(key) != state.value:
                raise CannotMigrate(f"{self._url} holds another value than was written to it: {key}")

    def _move_id(self) -> str | None:
        """Returns the id of the unfinished migration in the target, or None."""
        found = self._states.get(keys.MOVING)
        return str(keys.decode(found.value)["move_id"]) if found is not None else None


async def _read_entries(source: EmbeddedStore) -> dict[str, bytes]:
    entries: dict[str, bytes] = {}

    def take(change: Change) -> None:
        entries.update({key: state.value for key, state in change.states.items() if state is not None})

    await source.watch("", take)
    return entries


def _batches(names: Sequence[str], entries: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Yields the keys in batches that each fit into one transaction."""
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
