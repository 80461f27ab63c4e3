"""ZooKeeper watch: reads the nodes named by watch events, and notifies watchers of their new values.

A server sends the events of a transaction before any response with its zxid or a later one, and serves a connection
in order. So after a response with zxid z, all events up to z have arrived; and once all nodes that these events name
have been read, watchers can be notified of all changes up to z.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import GetChildren, GetData, Sync

from penstock.coordination.store import Change, StoreUnavailable, Versioned, Watcher
from penstock.coordination.watchers import Watch, Watchers, in_time
from penstock.coordination.zookeeper_client import AddWatch, ZookeeperClient
from penstock.coordination.zookeeper_nodes import BUCKETS, Nodes, versioned

logger = logging.getLogger(__name__)

READS_AT_ONCE: Final = 500
ROUNDS_MAX: Final = 4
"""Maximum number of reads before watchers are notified; nodes that change during a read are read again."""
SNAPSHOT_TIMEOUT_S: Final = 60.0
PAUSE_S: Final = 0.2

States = dict[str, Versioned | None]


class Follower:
    """Reads changed nodes and notifies watchers, in a single task so that no old value follows a newer one."""

    def __init__(self, client: ZookeeperClient, nodes: Nodes, watchers: Watchers) -> None:
        self._client = client
        self._nodes = nodes
        self._watchers = watchers
        self._followed = 0
        """ZookeeperClient.connection when the recursive watch was added. If it differs now, the watch is lost."""
        self._dirty: set[str] = set()
        self._known: set[str] = set()
        """Keys that exist according to the changes sent to watchers."""
        self._joining: dict[Watch, asyncio.Future[None]] = {}
        self._wake = asyncio.Event()
        self._wanted = 0
        """The highest zxid that a task in `wait_notified` waits for."""
        self._prefixes: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def on_event(self, path: str) -> None:
        key = self._nodes.key_at(path)
        if key is not None:
            self._dirty.add(key)
            self._wake.set()

    def on_connected(self) -> None:
        self._wake.set()

    async def add_watcher(self, prefix: str, watcher: Watcher) -> None:
        """Adds a watcher. Returns when the watcher has received its snapshot."""
        watch = self._watchers.join(prefix, watcher)
        self._joining[watch] = joined = asyncio.get_running_loop().create_future()
        try:
            await self._client.connected()
            self._wake.set()
            async with in_time(SNAPSHOT_TIMEOUT_S, self._client.name):
                await joined
        except BaseException:
            if watch.waiting is not None:
                self._watchers.leave(watch)
            self._joining.pop(watch, None)
            raise

    async def wait_notified(self, zxid: int) -> None:
        """Waits until the watchers are notified of all changes up to `zxid`."""
        self._wanted = max(self._wanted, zxid)
        self._wake.set()
        await self._watchers.wait_notified(zxid)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for joined in self._joining.values():
            if not joined.done():
                joined.set_exception(StoreUnavailable(f"the connection to {self._client.name} is closed"))

    @property
    def _has_work(self) -> bool:
        if not self._client.is_connected:
            return False
        is_behind = self._followed != self._client.connection or self._watchers.notified < self._wanted
        return bool(self._joining or (self._prefixes and (self._dirty or is_behind)))

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._has_work:
                try:
                    await self._step()
                except StoreUnavailable as error:
                    if self._client.is_connected:
                        logger.warning("store_read_failed store=%r reason=%r", self._client.name, str(error))
                    self._followed = 0
                    await asyncio.sleep(PAUSE_S)

    async def _step(self) -> None:
        if self._followed != self._client.connection:
            await self._follow()
        elif self._joining:
            await self._begin_joining()
        else:
            await self._catch_up()

    async def _follow(self) -> None:
        """Adds the recursive watch, and sends a snapshot to all watchers."""
        connection = self._client.connection
        self._dirty.clear()
        await self._client.ask(AddWatch(self._nodes.root))
        synced = await self._client.ask(Sync(self._nodes.root))
        if synced.zxid < self._watchers.notified:
            raise StoreUnavailable(f"the server lags behind the last known transaction: its zxid is {synced.zxid}")
        joining = dict(self._joining)
        prefixes = (*self._prefixes, *(watch.prefix for watch in joining))
        revision = self._client.zxid
        states = await self._read_all(prefixes)
        if self._client.connection != connection:
            return
        self._followed = connection
        self._prefixes = prefixes
        self._known = set(states)
        snapshot = Change(revision=revision, snapshot=True, states=states)
        self._begin(joining, snapshot)
        self._watchers.notify(snapshot)

    async def _begin_joining(self) -> None:
        connection, joining = self._client.connection, dict(self._joining)
        prefixes = tuple(watch.prefix for watch in joining)
        revision = self._client.zxid
        states = await self._read_all(prefixes)
        if self._client.connection != connection:
            return
        self._known |= set(states)
        self._prefixes += prefixes
        self._begin(joining, Change(revision=revision, snapshot=True, states=states))

    def _begin(self, joining: dict[Watch, asyncio.Future[None]], snapshot: Change) -> None:
        for watch, joined in joining.items():
            if self._joining.pop(watch, None) is not None and not joined.done():
                watch.begin(snapshot)
                joined.set_result(None)

    async def _catch_up(self) -> None:
        """Reads changed nodes and notifies the watchers; includes nodes that change during the reads."""
        connection, states = self._client.connection, States()
        for _ in range(ROUNDS_MAX):
            revision = self._client.zxid
            dirty, self._dirty = self._dirty, set()
            states |= await self._read(key for key in dirty if key.startswith(self._prefixes))
            if self._client.connection != connection:
                return  # a new snapshot follows
            if not self._dirty:
                revision = self._client.zxid
                break
        # A key that was created and deleted in between (as a check for ABSENT does) is not reported.
        changed = {key: state for key, state in states.items() if state is not None or key in self._known}
        for key, state in changed.items():
            (self._known.discard if state is None else self._known.add)(key)
        self._watchers.notify(Change(revision=revision, states=changed))

    async def _read_all(self, prefixes: tuple[str, ...]) -> States:
        paths = [self._nodes.bucket(name) for name in BUCKETS]
        listed = await self._ask_all(paths, lambda path: GetChildren(path, None))
        keys = [self._nodes.key(name) for names in listed if names is not None for name in names]
        states = await self._read(key for key in keys if key.startswith(prefixes))
        return {key: state for key, state in states.items() if state is not None}

    async def _read(self, keys: Iterable[str]) -> States:
        names = list(keys)
        found = await self._ask_all(names, lambda key: GetData(self._nodes.path(key), None))
        return {key: node and versioned(*node) for key, node in zip(names, found, strict=True)}

    async def _ask_all(self, about: Iterable[str], request_of: Callable[[str], Any]) -> list[Any]:
        """Returns the answers to one request per node, None for missing nodes. Limits the requests in flight."""
        rest, answers = iter(about), list[Any]()
        while some := list(islice(rest, READS_AT_ONCE)):
            async with in_time(self._client.timeout_s, self._client.name):
                asked = [self._client.send(request_of(one)) for one in some]
                for answer in await asyncio.gather(*asked, return_exceptions=True):
                    if isinstance(answer, BaseException):
                        if not isinstance(answer, NoNodeError):
                            raise answer
                        answers.append(None)
                    else:
                        answers.append(answer.value)
        return answers
