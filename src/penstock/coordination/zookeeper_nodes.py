"""What stands where in ZooKeeper, and transactions as it knows them. Pure.

A key is one node under one of 256 parents, chosen by a hash: ZooKeeper lists children all at once, and a list that
grows past `jute.maxbuffer` could not be read any more.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)
from kazoo.protocol.serialization import CheckVersion, Create, SetData, Transaction
from kazoo.protocol.serialization import Delete as DeleteNode
from kazoo.security import OPEN_ACL_UNSAFE

from penstock.coordination.store import (
    ABSENT,
    Conflict,
    Delete,
    Op,
    Put,
    StoreUnavailable,
    TransactionTooLarge,
    Versioned,
)

BUCKETS: Final = tuple(f"{number:02x}" for number in range(256))
TRANSACTION_BYTES_MAX: Final = 1_000_000
"""A little less than `jute.maxbuffer`: a server hangs up on whoever sends it more."""
_VERSION_MAX: Final = 2**31 - 1
_PERSISTENT: Final = 0
_EPHEMERAL: Final = 1


class Nodes:
    """Paths below the chroot `root` ("" or "/a/b")."""

    def __init__(self, root: str) -> None:
        self.root = root or "/"
        self._prefix = root

    def parents(self) -> list[str]:
        """The chroot and all that is above it, from the top."""
        parts = self._prefix.split("/")[1:]
        return ["/" + "/".join(parts[: length + 1]) for length in range(len(parts))]

    def bucket(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def path(self, key: str) -> str:
        # A node's name may hold neither slashes nor control characters, nor be a dot or two.
        name = quote(key, safe="").replace(".", "%2E")
        return f"{self._prefix}/{BUCKETS[zlib.crc32(key.encode()) & 0xFF]}/{name}"

    @staticmethod
    def key(name: str) -> str:
        """The key of a node, by its name in the bucket."""
        return unquote(name)

    def key_at(self, path: str) -> str | None:
        """The key of a node, by its path; None if that is no key's."""
        if not path.startswith(f"{self._prefix}/"):
            return None
        bucket, _, name = path[len(self._prefix) + 1 :].partition("/")
        return unquote(name) if name and bucket in BUCKETS else None

    def make_buckets(self) -> Transaction:
        return Transaction([_create(self.bucket(name), b"") for name in BUCKETS])

    def transaction(self, ops: Sequence[Op]) -> Transaction:
        """One multi: all or nothing."""
        for op in ops:
            if op.version > _VERSION_MAX:
                raise Conflict(op.key)  # no node has such a version
        request = Transaction([step for op in ops for step in self._steps(op)])
        size = len(request.serialize())
        if size > TRANSACTION_BYTES_MAX:
            raise TransactionTooLarge(
                f"ZooKeeper takes {TRANSACTION_BYTES_MAX} bytes in one transaction, these {len(ops)} operations have "
                f"{size}: ask for less at a time"
            )
        return request

    def _steps(self, op: Op) -> list[Any]:
        path, version = self.path(op.key), op.version - 1
        if isinstance(op, Put):
            if op.version == ABSENT:
                return [_create(path, op.value, _EPHEMERAL if op.leased else _PERSISTENT)]
            return [SetData(path, op.value, version)]
        if op.version == ABSENT:
            # ZooKeeper cannot check that there is no node, only make one.
            return [_create(path, b""), DeleteNode(path, 0)]
        return [DeleteNode(path, version) if isinstance(op, Delete) else CheckVersion(path, version)]

    def raise_refusal(self, ops: Sequence[Op], results: Iterable[Any]) -> None:
        """Raises Conflict if a transaction was refused for a version, and what is true if for something else."""
        owners = [op for op in ops for _ in self._steps(op)]
        for op, result in zip(owners, results, strict=False):
            if not isinstance(result, ZookeeperError) or isinstance(result, RolledBackError | RuntimeInconsistency):
                continue
            if isinstance(result, NoNodeError) and op.version == ABSENT:
                raise StoreUnavailable(f"ZooKeeper lacks a part of {self.root}: someone has removed it")
            if isinstance(result, BadVersionError | NodeExistsError | NoNodeError):
                raise Conflict(op.key)
            raise StoreUnavailable(f"ZooKeeper refused a change of {op.key}: {type(result).__name__}")


def _create(path: str, value: bytes, flags: int = _PERSISTENT) -> Create:
    return Create(path, value, OPEN_ACL_UNSAFE, flags)


def versioned(value: bytes, stat: Any) -> Versioned:
    """A node as the port knows it: ZooKeeper's versions begin at 0, which is ABSENT there."""
    return Versioned(value=value, version=stat.version + 1)
