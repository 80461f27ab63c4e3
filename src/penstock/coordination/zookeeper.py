"""ZookeeperStore: the Store interface on ZooKeeper 3.6 or newer, with the client library kazoo.

A revision is a zxid; a key's version is the version of its node, counted from 1.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from kazoo.exceptions import NodeExistsError, NoNodeError, ZookeeperError
from kazoo.protocol.serialization import Create, Exists, GetData, Sync
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from penstock.coordination.store import TIMEOUT_S, Op, StoreUnavailable, Versioned, Watcher, validate
from penstock.coordination.store_security import StoreSecurity
from penstock.coordination.watchers import Watchers, in_time
from penstock.coordination.zookeeper_client import ZookeeperClient
from penstock.coordination.zookeeper_nodes import BUCKETS, Nodes, versioned
from penstock.coordination.zookeeper_watch import Follower


class ZookeeperStore:
    """The store on ZooKeeper. `hosts`: `host:port,host:port`; `root`: the chroot. Leased keys are ephemeral nodes."""

    def __init__(
        self,
        hosts: str,
        root: str,
        *,
        ttl_s: float,
        timeout_s: float = TIMEOUT_S,
        security: StoreSecurity | None = None,
    ) -> None:
        security = security or StoreSecurity()
        self.on_session_lost: list[Callable[[], None]] = []
        self._nodes = Nodes(root, CREATOR_ALL_ACL if security.sets_acl else OPEN_ACL_UNSAFE)
        self._watchers = Watchers()
        self._client = ZookeeperClient(hosts, ttl_s, timeout_s, security)
        self._follower = Follower(self._client, self._nodes, self._watchers)
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    async def open(self) -> None:
        """Connects to ZooKeeper, and creates the parent nodes of all keys if they are missing."""
        self._client.on_connected = self._follower.on_connected
        self._client.on_event = self._follower.on_event
        self._client.on_session_lost = self._session_lost
        self._follower.start()
        try:
            await self._client.open()
            await self._prepare()
        except BaseException:
            await self.close()
            raise

    async def _prepare(self) -> None:
        for path in self._nodes.parents():
            with contextlib.suppress(NodeExistsError):
                await self._client.ask(Create(path, b"", self._nodes.acl, 0))
        if (await self._client.ask(Exists(self._nodes.bucket(BUCKETS[-1]), None))).value is None:
            results = (await self._client.ask(self._nodes.make_buckets())).value
            refused = [result for result in results if isinstance(result, ZookeeperError)]
            if refused and not any(isinstance(result, NodeExistsError) for result in refused):
                raise StoreUnavailable(f"{self._client.name} refused to create nodes below {self._nodes.root}")

    def _session_lost(self) -> None:
        for callback in tuple(self.on_session_lost):
            callback()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"the connection to {self._client.name} is closed")

    async def get(self, key: str) -> Versioned | None:
        self._check_open()
        async with in_time(self._client.timeout_s, self._client.name):
            await self._client.connected()
            # A server may lag behind the others; a read after a sync on the same connection does not.
            synced = self._client.send(Sync(self._nodes.root))
            found = self._client.send(GetData(self._nodes.path(key), None))
            try:
                answers = await asyncio.gather(synced, found)
            except NoNodeError:
                return None
            return versioned(*answers[1].value)

    async def transact(self, ops: Sequence[Op]) -> int:
        self._check_open()
        ops = validate(ops)
        request = self._nodes.transaction(ops)
        async with in_time(self._client.timeout_s, self._client.name):
            answer = await self._client.ask(request)
            self._nodes.raise_if_refused(ops, answer.value)
            await self._follower.wait_notified(answer.zxid)
            return answer.zxid

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        self._check_open()
        await self._follower.add_watcher(prefix, watcher)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await self._follower.close()
        await self._client.close()
        self._watchers.close()
