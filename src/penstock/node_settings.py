"""The configuration of a broker process, as `penstock serve` reads it from the command line and files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cluster.listeners import Listeners
from penstock.coordination.store import Store
from penstock.coordination.store_security import StoreSecurity
from penstock.coordination.stores import EMBEDDED, open_store
from penstock.foundation.address import Address
from penstock.foundation.secret_references import resolve_all

_LISTEN = Address(host="127.0.0.1", port=9092)
_HTTP = Address(host="127.0.0.1", port=9324)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The configuration of a node; `settings` are broker settings by their Kafka names."""

    data_dir: Path = Path("penstock-data")
    listen: Address = _LISTEN
    advertise: Address | None = None
    http: Address = _HTTP
    node_id: int = 1
    store: str = EMBEDDED
    """The metadata store: embedded in the data folder, or a ZooKeeper or etcd that several brokers share."""
    store_config: Path | None = None
    """File with properties for TLS and a login at the store; None for neither."""
    session_s: float = 6.0
    """Session timeout in seconds, after which a broker without heartbeats loses its registration."""
    credentials: Path | None = None
    """File with the access keys that must sign SQS requests; None accepts unsigned requests."""
    listeners: Listeners | None = None
    """The Kafka listeners, if they are not the one that `listen` and `advertise` define."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    listener_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """TLS and SASL settings of single listeners: `listener.name.NAME.ssl.…`, `listener.name.NAME.….sasl.…`."""

    async def open_store(self) -> Store:
        """Returns the open metadata store. Raises InvalidConfig or StoreUnavailable."""
        security = StoreSecurity.read(self.store_config)
        return await open_store(self.store, self.data_dir, self.session_s, security=security)

    @property
    def named(self) -> dict[str, str]:
        """Returns the settings by name, those of single listeners among them, without references to secrets."""
        return resolve_all({**self.settings, **self.listener_settings})

    @property
    def kafka(self) -> Listeners:
        """Returns the Kafka listeners."""
        return self.listeners or Listeners.plain(self.listen, self.advertise)
