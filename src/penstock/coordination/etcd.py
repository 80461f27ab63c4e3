"""EtcdStore: the Store interface on etcd. A key's version is the etcd revision of its last change."""

from collections.abc import Callable, Sequence
from typing import Any

from aetcd import rpc
from grpc import StatusCode

from penstock.coordination.etcd_client import EtcdClient, Refused
from penstock.coordination.etcd_session import NO_LEASE, EtcdSession
from penstock.coordination.etcd_watch import EtcdFollower, versioned
from penstock.coordination.store import (
    ABSENT,
    TIMEOUT_S,
    Conflict,
    Delete,
    Op,
    Put,
    StoreUnavailable,
    TransactionTooLarge,
    Versioned,
    Watcher,
    has_writes,
    validate,
)
from penstock.coordination.store_security import StoreSecurity
from penstock.coordination.watchers import Watchers, in_time


class EtcdStore:
    """The coordination store on etcd. `addresses`: `host:port` of all servers; `root`: prefix of all keys;
    `ttl_s`: TTL of the etcd lease that all leased keys share."""

    def __init__(
        self,
        addresses: Sequence[str],
        root: str,
        *,
        ttl_s: float,
        timeout_s: float = TIMEOUT_S,
        security: StoreSecurity | None = None,
    ) -> None:
        self.on_session_lost: list[Callable[[], None]] = []
        self._root = f"{root}/".encode()
        self._watchers = Watchers()
        self._client = EtcdClient(addresses, timeout_s, security or StoreSecurity())
        self._session = EtcdSession(self._client, ttl_s)
        self._session.on_lost = self._session_lost
        self._follower = EtcdFollower(self._client, self._root, self._watchers)
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._session.is_alive and self._client.is_ready

    async def open(self) -> None:
        try:
            await self._session.open()
        except BaseException:
            await self.close()
            raise

    def _session_lost(self) -> None:
        for callback in tuple(self.on_session_lost):
            callback()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"the connection to {self._client.name} is closed")

    def _key(self, key: str) -> bytes:
        return self._root + key.encode()

    async def get(self, key: str) -> Versioned | None:
        self._check_open()
        request = rpc.RangeRequest(key=self._key(key))
        found = await self._client.read(
            lambda channel, s: rpc.KVStub(channel).Range(request, timeout=s, metadata=self._client.metadata)
        )
        return versioned(found.kvs[0]) if found.kvs else None

    async def transact(self, ops: Sequence[Op]) -> int:
        self._check_open()
        ops = validate(ops)
        is_leased = any(isinstance(op, Put) and op.leased for op in ops)
        lease = await self._session.wait_for_lease() if is_leased else NO_LEASE
        answer = await self._commit(self._transaction(ops, lease), lease)
        if not answer.succeeded:
            raise Conflict(self._conflicting_key(ops, answer))
        revision = int(answer.header.revision)
        if not has_writes(ops):
            return self._watchers.limit_to_seen(revision)
        async with in_time(self._client.timeout_s, self._client.name):
            await self._watchers.wait_notified(revision)
        return revision

    async def _commit(self, request: Any, lease: int) -> Any:
        try:
            return await self._client.write(
                lambda channel, s: rpc.KVStub(channel).Txn(request, timeout=s, metadata=self._client.metadata)
            )
        except Refused as refused:
            if refused.status == StatusCode.NOT_FOUND and lease != NO_LEASE:
                self._session.lost(lease)
                raise StoreUnavailable(
                    f"the session at {self._client.name} has expired, nothing was changed"
                ) from refused
            if "too many operations" in str(refused):
                raise TransactionTooLarge(
                    f"{self._client.name} does not accept {len(request.compare)} operations in one transaction; "
                    "start its servers with a larger --max-txn-ops"
                ) from refused
            if "too large" in str(refused) or "larger than max" in str(refused):
                raise TransactionTooLarge(
                    f"{self._client.name} does not accept {request.ByteSize()} bytes in one transaction; "
                    "start its servers with a larger --max-request-bytes"
                ) from refused
            raise

    def _transaction(self, ops: Sequence[Op], lease: int) -> Any:
        request = rpc.TxnRequest()
        for op in ops:
            key = self._key(op.key)
            request.compare.add(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=op.version)
            # If the transaction fails, returns the current version.
            request.failure.add(request_range=rpc.RangeRequest(key=key, keys_only=True))
            if isinstance(op, Put):
                put = rpc.PutRequest(key=key, value=op.value, lease=lease if op.leased else NO_LEASE)
                put.ignore_lease = op.version != ABSENT  # it keeps its first lease
                request.success.add(request_put=put)
            elif isinstance(op, Delete):
                request.success.add(request_delete_range=rpc.DeleteRangeRequest(key=key))
        return request

    @staticmethod
    def _conflicting_key(ops: Sequence[Op], answer: Any) -> str:
        """Returns the first key of a failed transaction whose version was not the expected one."""
        for op, found in zip(ops, answer.responses, strict=True):
            kvs = found.response_range.kvs
            if (kvs[0].mod_revision if kvs else ABSENT) != op.version:
                return op.key
        raise AssertionError("etcd refused a transaction whose conditions hold")

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        self._check_open()
        await self._follower.add_watcher(prefix, watcher)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await self._follower.close()
        await self._session.close()
        await self._client.close()
        self._watchers.close()
