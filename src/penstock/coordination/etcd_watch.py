"""etcd watch: one stream of all changes below the store's prefix, resumed at its last revision after failures."""

import asyncio
import logging
from typing import Any, Final

from aetcd import rpc
from grpc import StatusCode

from penstock.coordination.etcd_client import EtcdClient, Refused, is_cancelled
from penstock.coordination.etcd_session import HAS_LEADER, PAUSE_S
from penstock.coordination.store import Change, StoreUnavailable, Versioned, Watcher
from penstock.coordination.watchers import Watchers, in_time

logger = logging.getLogger(__name__)

PAGE_KEYS: Final = 500
BEGIN_S: Final = 1.0
"""Timeout, in seconds, for starting the watch on a connected server."""


class EtcdFollower:
    """Notifies watchers of changes in revision order, those of a revision together. `root`: prefix of all keys."""

    def __init__(self, client: EtcdClient, root: bytes, watchers: Watchers) -> None:
        self._client = client
        self._root = root
        self._watchers = watchers
        self._position: int | None = None
        """The last revision that watchers were notified of; None if etcd has compacted the changes after it."""
        self._channel: Any = None
        self._call: Any = None
        self._task: asyncio.Task[None] | None = None
        self._joining = asyncio.Lock()
        self._is_failing = False
        client.on_failover.append(self._cancel_watch)

    async def add_watcher(self, prefix: str, watcher: Watcher) -> None:
        """Adds a watcher. Returns when the watcher has received its snapshot."""
        watch = self._watchers.join(prefix, watcher)
        try:
            # One at a time: the stream begins at the first snapshot, and no later one may be older.
            async with self._joining:
                snapshot = await self._snapshot(prefix)
                watch.begin(snapshot)
                if self._task is None:
                    self._position = snapshot.revision
                    self._watchers.mark_notified(snapshot.revision)
                    self._task = asyncio.create_task(self._run())
        except BaseException:
            if watch.waiting is not None:
                self._watchers.leave(watch)
            raise

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _cancel_watch(self) -> None:
        """Cancels the watch on the previous server after a failover."""
        if self._call is not None:
            self._call.cancel()

    async def _run(self) -> None:
        while True:
            try:
                if self._position is None:
                    snapshot = await self._snapshot("")
                    self._position = snapshot.revision
                    self._watchers.notify(snapshot)
                await self._client.write(self._begin, BEGIN_S)
                self._is_failing = False
                await self._follow()
            except StoreUnavailable as error:
                self._client.fail_over_from(self._channel)
                if not self._is_failing:  # once while it lasts
                    logger.warning("store_watch_failed store=%r reason=%r", self._client.name, str(error))
                self._is_failing = True
                await asyncio.sleep(PAUSE_S)
            finally:
                self._cancel_watch()

    async def _begin(self, channel: Any, timeout_s: float) -> None:
        assert self._position is not None
        self._channel = channel
        self._call = rpc.WatchStub(channel).Watch(metadata=HAS_LEADER + self._client.metadata)
        wanted = rpc.WatchCreateRequest(
            key=self._root, range_end=range_end_of(self._root), start_revision=self._position + 1
        )
        # A call that is cancelled before it has started never fails its write.
        async with in_time(timeout_s, self._client.name):
            await self._call.write(rpc.WatchRequest(create_request=wanted))

    async def _follow(self) -> None:
        """Notifies watchers of changes, until the stream ends or its start revision was compacted."""
        while True:
            try:
                response = await self._call.read()
            except rpc.AioRpcError as error:
                self._client.check_token(error)
                raise StoreUnavailable(f"{self._client.name} ended the watch: {error.details()}") from error
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                raise StoreUnavailable(f"the watch of {self._client.name} was cancelled") from error
            if not isinstance(response, rpc.WatchResponse):
                raise StoreUnavailable(f"{self._client.name} ended the watch")
            if response.compact_revision:
                logger.info("store_compacted store=%r revision=%d", self._client.name, response.compact_revision)
                self._position = None
                return
            if response.canceled:
                raise StoreUnavailable(f"{self._client.name} cancelled the watch: {response.cancel_reason}")
            if response.events:
                self._notify_events(response.events)

    def _notify_events(self, events: Any) -> None:
        """Notifies watchers of events, which are ordered by revision; all events of a revision come together."""
        states: dict[str, Versioned | None] = {}
        for event in events:
            is_put = event.type == rpc.Event.PUT
            states[self._key(event.kv.key)] = versioned(event.kv) if is_put else None
        self._position = events[-1].kv.mod_revision
        self._watchers.notify(Change(revision=events[-1].kv.mod_revision, states=states))

    def _key(self, key: bytes) -> str:
        return key[len(self._root) :].decode()

    async def _snapshot(self, prefix: str) -> Change:
        while True:
            try:
                return await self._read_all(self._root + prefix.encode())
            except Refused as error:
                if error.status != StatusCode.OUT_OF_RANGE:  # compacted between two pages
                    raise

    async def _read_all(self, prefix: bytes) -> Change:
        """Reads all keys with this prefix, page by page, as they were at one revision."""
        states: dict[str, Versioned | None] = {}
        request = rpc.RangeRequest(key=prefix, range_end=range_end_of(prefix), limit=PAGE_KEYS)
        while True:
            page = await self._client.read(
                lambda channel, s: rpc.KVStub(channel).Range(request, timeout=s, metadata=self._client.metadata)
            )
            for found in page.kvs:
                states[self._key(found.key)] = versioned(found)
            request.revision = request.revision or page.header.revision
            if not page.more:
                return Change(revision=request.revision, snapshot=True, states=states)
            request.key = page.kvs[-1].key + b"\0"


def versioned(found: Any) -> Versioned:
    return Versioned(value=found.value, version=found.mod_revision)


def range_end_of(prefix: bytes) -> bytes:
    """Returns the exclusive end of the key range with this prefix, which must have a byte other than 0xff."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])
