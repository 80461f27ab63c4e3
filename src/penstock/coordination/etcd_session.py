"""Session in etcd: a lease kept alive by heartbeats, which also detect a server that does not answer."""

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
"""gRPC metadata that makes a server without contact to the etcd leader fail the call instead of delaying it."""


class EtcdSession:
    """Obtains a lease from etcd, keeps it alive, and obtains a new lease when the old one has expired."""

    def __init__(self, client: EtcdClient, ttl_s: float) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        self.lease = NO_LEASE
        self.is_alive = False
        """Whether the last heartbeat was answered."""
        self._client = client
        self._ttl_s = math.ceil(ttl_s)
        self._has_lease = asyncio.Event()
        self._heartbeat_now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        client.on_failover.append(self._heartbeat_now.set)

    async def open(self) -> None:
        await self._grant()
        self._task = asyncio.create_task(self._run())

    async def wait_for_lease(self) -> int:
        """Returns the id of the lease; waits for a new lease if the old one was lost."""
        async with in_time(self._client.timeout_s, self._client.name):
            await self._has_lease.wait()
            return self.lease

    async def close(self) -> None:
        """Revokes the lease, which deletes its keys."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        lease, self.lease = self.lease, NO_LEASE
        self.is_alive = False
        self._has_lease.clear()
        if lease != NO_LEASE:
            request = rpc.LeaseRevokeRequest(ID=lease)
            try:
                await self._client.read(
                    lambda channel, s: rpc.LeaseStub(channel).LeaseRevoke(
                        request, timeout=s, metadata=self._client.metadata
                    )
                )
            except StoreUnavailable as error:
                logger.info("lease_not_revoked store=%r reason=%r", self._client.name, str(error))

    def lost(self, lease: int) -> None:
        """Handles the expiry of a lease on the servers: notifies `on_lost`, and requests a new lease."""
        if lease == self.lease and lease != NO_LEASE:
            self.lease = NO_LEASE
            self._has_lease.clear()
            self._heartbeat_now.set()
            logger.warning("store_session_lost store=%r", self._client.name)
            self.on_lost()

    async def _run(self) -> None:
        while True:
            await self._pause()
            try:
                if self.lease == NO_LEASE:
                    await self._grant()
                else:
                    await self._heartbeat()
            except StoreUnavailable as error:
                self._set_alive(False, str(error))
            else:
                self._set_alive(True, "")

    async def _pause(self) -> None:
        """Waits until the next heartbeat is due, or a failover requires a heartbeat at once."""
        if not self.is_alive:
            await asyncio.sleep(PAUSE_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._ttl_s / 3):
                await self._heartbeat_now.wait()
        self._heartbeat_now.clear()

    def _set_alive(self, is_alive: bool, reason: str) -> None:
        if is_alive != self.is_alive:
            if is_alive:
                logger.info("store_connected store=%r", self._client.name)
            else:
                logger.warning("store_disconnected store=%r reason=%r", self._client.name, reason)
        self.is_alive = is_alive

    async def _grant(self) -> None:
        request = rpc.LeaseGrantRequest(TTL=self._ttl_s)
        # Safe to retry: a lease whose grant was not received expires.
        answer = await self._client.read(
            lambda channel, s: rpc.LeaseStub(channel).LeaseGrant(request, timeout=s, metadata=self._client.metadata)
        )
        self.lease = answer.ID
        self._ttl_s = answer.TTL
        self.is_alive = True
        self._has_lease.set()

    async def _heartbeat(self) -> None:
        lease = self.lease
        try:
            # Shorter than the client's timeout: a failover from a hanging server must come before the lease expires.
            ttl_s = await self._client.write(self._keep_alive, self._ttl_s / 3)
        except Refused as error:
            if error.status != StatusCode.NOT_FOUND:
                raise
            ttl_s = 0
        if ttl_s <= 0:
            self.lost(lease)

    async def _keep_alive(self, channel: Any, timeout_s: float) -> int:
        call = rpc.LeaseStub(channel).LeaseKeepAlive(timeout=timeout_s, metadata=HAS_LEADER + self._client.metadata)
        try:
            # gRPC's own deadline does not end a call that could not start.
            async with in_time(timeout_s, self._client.name):
                await call.write(rpc.LeaseKeepAliveRequest(ID=self.lease))
                answer = await call.read()
        finally:
            call.cancel()
        if not isinstance(answer, rpc.LeaseKeepAliveResponse):
            raise StoreUnavailable(f"{self._client.name} ended the call")
        return int(answer.TTL)
