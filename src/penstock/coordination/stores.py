"""Opens a store by its URL: `embedded`, `zookeeper://host:port,host:port/chroot` or `etcd://host:port/prefix`."""

import random
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.store import TIMEOUT_S, Store
from penstock.coordination.store_security import StoreSecurity
from penstock.foundation.errors import InvalidConfig

EMBEDDED: Final = "embedded"
NO_SECURITY: Final = StoreSecurity()
EMBEDDED_FILE: Final = "metadata.db"
ROOT: Final = "/penstock"
"""Default path below which all keys are stored, if the URL has no path."""
_PORTS: Final = {"zookeeper": 2181, "etcd": 2379}
_LIBRARIES: Final = {"zookeeper": "kazoo", "etcd": "aetcd"}
_EXPECTED: Final = (
    "expected 'embedded', 'zookeeper://host:port,host:port/chroot' or 'etcd://host:port,host:port/prefix'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The parsed URL of a remote store."""

    kind: str
    servers: tuple[str, ...]
    root: str


async def open_store(
    url: str,
    data_dir: Path,
    ttl_s: float,
    timeout_s: float = TIMEOUT_S,
    security: StoreSecurity = NO_SECURITY,
) -> Store:
    """Returns an open store. `ttl_s`: seconds that the session lasts after the last heartbeat of a broker.
    `security`: how to connect to ZooKeeper or etcd.

    Servers limit `ttl_s` (ZooKeeper: 2 to 20 ticks; etcd: at least 1.5 election timeouts). Raises InvalidConfig if
    the URL is invalid or a library is missing, StoreUnavailable if no server answers, StoreMoved if the embedded
    store was migrated.
    """
    if ttl_s <= 0:
        raise InvalidConfig(f"the session timeout must be more than 0 seconds, got {ttl_s:g}")
    if url == EMBEDDED:
        return await open_embedded(data_dir)
    address = parse(url)
    # In random order, so that brokers spread over the servers, also when they fail over.
    servers = random.sample(address.servers, len(address.servers))
    options = {"ttl_s": ttl_s, "timeout_s": timeout_s, "security": security}
    if address.kind == "zookeeper":
        made = _module(address).ZookeeperStore(",".join(servers), address.root, **options)
    else:
        made = _module(address).EtcdStore(servers, address.root, **options)
    await made.open()
    store: Store = made
    return store


async def open_embedded(data_dir: Path, *, opens_sealed: bool = False) -> EmbeddedStore:
    """Opens a data folder's store. Raises StoreMoved if it was migrated to another store, unless `opens_sealed`."""
    store = EmbeddedStore(data_dir / EMBEDDED_FILE, opens_sealed=opens_sealed)
    try:
        await store.open()
    except BaseException:
        await store.close()
        raise
    return store


def _module(address: Address) -> Any:
    """Imports the adapter module of a store. Raises InvalidConfig if its optional library is not installed."""
    try:
        return import_module(f"penstock.coordination.{address.kind}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("penstock"):
            raise
        raise InvalidConfig(
            f"a store in {address.kind} needs {_LIBRARIES[address.kind]}: pip install 'penstock[{address.kind}]'"
        ) from error


def parse(url: str) -> Address:
    """Parses the URL of a remote store. Raises InvalidConfig."""
    kind, separator, rest = url.partition("://")
    if not separator or kind not in _PORTS:
        raise InvalidConfig(f"{url!r} is not a store URL: {_EXPECTED}")
    hosts, _, path = rest.partition("/")
    root = "/" + path.rstrip("/") if path.strip("/") else ROOT
    if any(part in ("", ".", "..") for part in root.split("/")[1:]) or any(sign in url for sign in "?#@ "):
        raise InvalidConfig(f"{url!r} is not a store URL: {_EXPECTED}")
    return Address(kind=kind, servers=tuple(_server(host, url, _PORTS[kind]) for host in hosts.split(",")), root=root)


def _server(text: str, url: str, port: int) -> str:
    host, separator, number = text.rpartition(":")
    if not separator or text.endswith("]"):
        host, number = text, str(port)
    is_bare = ":" not in host or (host.startswith("[") and host.endswith("]"))
    if not host or not is_bare or not number.isdecimal() or not 0 < int(number) < 65536:
        raise InvalidConfig(f"{text!r} in {url!r} is not a server address: {_EXPECTED}")
    return f"{host}:{number}"
