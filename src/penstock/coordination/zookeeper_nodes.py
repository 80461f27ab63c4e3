"""ZooKeeper node layout, and the mapping of store transactions to ZooKeeper's multi. Pure.

A key is one node below one of 256 parents, chosen by a hash: ZooKeeper lists all children in one response, and a list
larger than `jute.maxbuffer` could not be read.
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
"""Maximum transaction size in bytes. Just below `jute.maxbuffer`: servers disconnect after a larger request."""
_VERSION_MAX: Final = 2**31 - 1
_PERSISTENT: Final = 0
_EPHEMERAL: Final = 1


class Nodes:
    """Converts between keys and paths of nodes below the chroot `root` ("" or "/a/b")."""

    def __init__(self, root: str, acl: Sequence[Any] = OPEN_ACL_UNSAFE) -> None:
        """`acl`: the permissions of new nodes."""
        self.acl = acl
        self.root = root or "/"
        self._prefix = root

    def parents(self) -> list[str]:
        """Returns the paths of the chroot and of all nodes above it, from the top."""
        parts = self._prefix.split("/")[1:]
        return ["/" + "/".join(parts[: length + 1]) for length in range(len(parts))]

    def bucket(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def path(self, key: str) -> str:
        # A node name must not contain slashes or control characters, nor be "." or "..".
        name = quote(key, safe="").replace(".", "%2E")
        return f"{self._prefix}/{BUCKETS[zlib.crc32(key.encode()) & 0xFF]}/{name}"

    @staticmethod
    def key(name: str) -> str:
        """Returns the key that a node name encodes."""
        return unquote(name)

    def key_at(self, path: str) -> str | None:
        """Returns the key of a node path; None if the node does not hold a key."""
        if not path.startswith(f"{self._prefix}/"):
            return None
        bucket, _, name = path[len(self._prefix) + 1 :].partition("/")
        return unquote(name) if name and bucket in BUCKETS else None

    def make_buckets(self) -> Transaction:
        return Transaction([self._create(self.bucket(name), b"") for name in BUCKETS])

    def transaction(self, ops: Sequence[Op]) -> Transaction:
        """Returns one ZooKeeper multi request for all operations. Raises Conflict or TransactionTooLarge."""
        for op in ops:
            if op.version > _VERSION_MAX:
                raise Conflict(op.key)  # no node can have this version
        request = Transaction([step for op in ops for step in self._steps(op)])
        size = len(request.serialize())
        if size > TRANSACTION_BYTES_MAX:
            raise TransactionTooLarge(
                f"ZooKeeper accepts {TRANSACTION_BYTES_MAX} bytes in one transaction, these {len(ops)} operations "
                f"have {size}; split the request"
            )
        return request

    def _steps(self, op: Op) -> list[Any]:
        path, version = self.path(op.key), op.version - 1
        if isinstance(op, Put):
            if op.version == ABSENT:
                return [self._create(path, op.value, _EPHEMERAL if op.leased else _PERSISTENT)]
            return [SetData(path, op.value, version)]
        if op.version == ABSENT:
            # ZooKeeper cannot check that a node is absent, only create it.
            return [self._create(path, b""), DeleteNode(path, 0)]
        return [DeleteNode(path, version) if isinstance(op, Delete) else CheckVersion(path, version)]

    def _create(self, path: str, value: bytes, flags: int = _PERSISTENT) -> Create:
        return Create(path, value, self.acl, flags)

    def raise_if_refused(self, ops: Sequence[Op], results: Iterable[Any]) -> None:
        """Raises Conflict if a transaction was refused because of a version, StoreUnavailable for other reasons."""
        owners = [op for op in ops for _ in self._steps(op)]
        for op, result in zip(owners, results, strict=False):
            if not isinstance(result, ZookeeperError) or isinstance(result, RolledBackError | RuntimeInconsistency):
                continue
            if isinstance(result, NoNodeError) and op.version == ABSENT:
                raise StoreUnavailable(f"ZooKeeper nodes below {self.root} are missing: they were deleted")
            if isinstance(result, BadVersionError | NodeExistsError | NoNodeError):
                raise Conflict(op.key)
            raise StoreUnavailable(f"ZooKeeper refused a change of {op.key}: {type(result).__name__}")


def versioned(value: bytes, stat: Any) -> Versioned:
    """Converts a node's value and stat. Adds 1 to the version: ZooKeeper starts at 0, but ABSENT is 0 as well."""
    return Versioned(value=value, version=stat.version + 1)
