"""The brokers of a pipeline: their addresses, and the security settings of connections to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.client.address import BOOTSTRAP_DEFAULT, parse_bootstrap
from penstock.client.cluster import ClientSettings
from penstock.client.connection import ConnectionSettings
from penstock.client.security import CLIENT_PROPERTIES, SecuritySettings
from penstock.foundation.errors import InvalidConfig
from penstock.spark.options import BOOTSTRAP, KAFKA

RETRY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Brokers:
    """Bootstrap brokers, with Kafka client properties about security. As text: the addresses."""

    addresses: str
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """By name; their values may be references to secrets."""

    @classmethod
    def of(cls, addresses: str, properties: Mapping[str, str] | None = None) -> "Brokers":
        """Raises ValueError if the addresses or the properties are not valid."""
        parse_bootstrap(addresses)
        given = dict(properties or {})
        unknown = sorted(given.keys() - CLIENT_PROPERTIES)
        if unknown:
            raise ValueError(f"{unknown[0]} is not a property of TLS or SASL, such as security.protocol")
        found = cls(addresses, tuple(sorted(given.items())))
        try:
            SecuritySettings.parse(given)
        except InvalidConfig as error:
            raise ValueError(str(error)) from None
        return found

    def __str__(self) -> str:
        return self.addresses

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark's data source. Secrets are references in them, if they were given as such."""
        return {BOOTSTRAP: self.addresses, **{f"{KAFKA}{name}": value for name, value in self.properties}}

    @property
    def client_settings(self) -> ClientSettings:
        """The settings of a client that connects to the brokers. Reads the secrets. Raises InvalidConfig."""
        security = SecuritySettings.parse(dict(self.properties))
        return ClientSettings(connection=ConnectionSettings(security=security), retry_for_s=RETRY_S)


DEFAULT: Final = Brokers(BOOTSTRAP_DEFAULT)
