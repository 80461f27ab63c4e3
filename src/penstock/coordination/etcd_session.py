"""A session in etcd is a lease that is kept alive. Its heartbeat also shows whether the server is there at all."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from typing import Any, Final

from aetcd import rpc
from grpc import StatusCode

from penstock.coordination.etcd_client import EtcdClient, Refused
from penstock.coordination.store import StoreUnavailable
from penstock.coordination.watchers import in_time

logger = logging.getLogger(__name__)

NO_LEASE: Final = 0
PAUSE_S: Final = 0.2
HAS_LEADER: Final = (("hasleader", "true"),)
"""A server that has lost the others ends the call, instead of keeping it waiting."""


class EtcdSession:
    """Grants itself a lease, keeps it alive, and grants itself another one when the servers say that it is over."""

    def __init__(self, client: EtcdClient, ttl_s: float) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        self.lease = NO_LEASE
        self.is_alive = False
        """Whether the last heartbeat was answered."""
        self._client = client
        self._ttl_s = math.ceil(ttl_s)
        self._has_lease = asyncio.Event()
        self._beat_now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        client.on_moved.append(self._beat_now.set)

    async def open(self) -> None:
        await self._grant()
        self._task = asyncio.create_task(self._run())

    async def granted(self) -> int:
        """The lease, if need be as soon as there is one again."""
        async with in_time(self._client.timeout_s, self._client.name):
            await self._has_lease.wait()
            return self.lease

    async def close(self) -> None:
        """Give the lease up, and all that hangs on it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        lease, self.lease = self.lease, NO_LEASE
        self.is_alive = False
        self._has_lease.clear()
        if lease != NO_LEASE:
            request = rpc.LeaseRevokeRequest(ID=lease)
            try:
                await self._client.read(lambda channel, s: rpc.LeaseStub(channel).LeaseRevoke(request, timeout=s))
            except StoreUnavailable as error:
                logger.info("lease_not_revoked store=%r reason=%r", self._client.name, str(error))

    def lost(self, lease: int) -> None:
        """The servers say that there is no such lease any more."""
        if lease == self.lease and lease != NO_LEASE:
            self.lease = NO_LEASE
            self._has_lease.clear()
            self._beat_now.set()
            logger.warning("store_session_lost store=%r", self._client.name)
            self.on_lost()

    async def _run(self) -> None:
        while True:
            await self._pause()
            try:
                if self.lease == NO_LEASE:
                    await self._grant()
                else:
                    await self._beat()
            except StoreUnavailable as error:
                self._note(False, str(error))
            else:
                self._note(True, "")

    async def _pause(self) -> None:
        """Until the next heartbeat is due, or something seems to be wrong."""
        if not self.is_alive:
            await asyncio.sleep(PAUSE_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._ttl_s / 3):
                await self._beat_now.wait()
        self._beat_now.clear()

    def _note(self, is_alive: bool, reason: str) -> None:
        if is_alive != self.is_alive:
            if is_alive:
                logger.info("store_connected store=%r", self._client.name)
            else:
                logger.warning("store_disconnected store=%r reason=%r", self._client.name, reason)
        self.is_alive = is_alive

    async def _grant(self) -> None:
        request = rpc.LeaseGrantRequest(TTL=self._ttl_s)
        # One that is granted without our hearing of it expires by itself, so this may be asked again.
        answer = await self._client.read(lambda channel, s: rpc.LeaseStub(channel).LeaseGrant(request, timeout=s))
        self.lease = answer.ID
        self._ttl_s = answer.TTL
        self.is_alive = True
        self._has_lease.set()

    async def _beat(self) -> None:
        lease = self.lease
        try:
            # Sooner than a caller would give up: a server that hangs is left while the lease is still good.
            ttl_s = await self._client.write(self._keep_alive, self._ttl_s / 3)
        except Refused as error:
            if error.status != StatusCode.NOT_FOUND:
                raise
            ttl_s = 0
        if ttl_s <= 0:
            self.lost(lease)

    async def _keep_alive(self, channel: Any, timeout_s: float) -> int:
        call = rpc.LeaseStub(channel).LeaseKeepAlive(timeout=timeout_s, metadata=HAS_LEADER)
        try:
            # Its own deadline does not end a call that could not begin.
            async with in_time(timeout_s, self._client.name):
                await call.write(rpc.LeaseKeepAliveRequest(ID=self.lease))
                answer = await call.read()
        finally:
            call.cancel()
        if not isinstance(answer, rpc.LeaseKeepAliveResponse):
            raise StoreUnavailable(f"{self._client.name} ended the call")
        return int(answer.TTL)
