"""Listeners of a broker, parsed and validated from Kafka's listener settings. Pure.

Each listener has a name, a security protocol, the address that it binds, and the address that clients connect to.
Brokers connect to each other on the inter-broker listener.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

from penstock.cluster.settings import (
    ADVERTISED_LISTENERS,
    CONTROLLER_NAMES,
    INTER_BROKER_NAME,
    INTER_BROKER_PROTOCOL,
    LISTENERS,
    PROTOCOL_MAP,
)
from penstock.foundation.address import Address
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.security_protocol import SecurityProtocol

PLAINTEXT: Final = SecurityProtocol.PLAINTEXT.value
ANYWHERE: Final = "0.0.0.0"
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_EXAMPLE: Final = "PLAINTEXT://127.0.0.1:9092"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listener. `advertised` is None if clients are not told of it."""

    name: str
    protocol: SecurityProtocol
    bind: Address
    advertised: Address | None = None

    def bound(self, port: int) -> "Listener":
        """Returns the listener with the port that it was bound to, in place of port 0 (any free port)."""
        advertised = self.advertised
        if advertised is not None and not advertised.port:
            advertised = replace(advertised, port=port)
        return replace(self, bind=replace(self.bind, port=port), advertised=advertised)

    def __str__(self) -> str:
        return f"{self.name}://{self.bind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """All listeners of a broker, and the name of the one that other brokers connect to."""

    all: tuple[Listener, ...]
    inter_broker: str

    @classmethod
    def plain(cls, listen: Address, advertise: Address | None = None) -> "Listeners":
        """Returns one listener named PLAINTEXT, which is what `--listen` and `--advertise` define."""
        only = Listener(
            name=PLAINTEXT, protocol=SecurityProtocol.PLAINTEXT, bind=listen, advertised=advertise or listen
        )
        return cls(all=(only,), inter_broker=PLAINTEXT)

    def __iter__(self) -> Iterator[Listener]:
        return iter(self.all)

    def __getitem__(self, name: str) -> Listener:
        return next(each for each in self.all if each.name == name)

    @property
    def is_plain(self) -> bool:
        """Whether this is the one listener that `--listen` and `--advertise` can define."""
        return [(each.name, each.protocol) for each in self.all] == [(PLAINTEXT, SecurityProtocol.PLAINTEXT)]

    @property
    def endpoints(self) -> dict[str, Address]:
        """Returns the advertised addresses by listener name."""
        return {each.name: each.advertised for each in self.all if each.advertised is not None}

    @property
    def peer_address(self) -> Address:
        """Returns the address that other brokers connect to."""
        return self.endpoints[self.inter_broker]

    @property
    def bind_text(self) -> str:
        """Returns the value of `listeners`."""
        return ",".join(map(str, self.all))

    @property
    def advertised_text(self) -> str:
        """Returns the value of `advertised.listeners`."""
        return ",".join(f"{name}://{address}" for name, address in self.endpoints.items())

    def __str__(self) -> str:
        """Formats the listen addresses for the operator: without a name if there is one plaintext listener."""
        return str(self.all[0].bind) if self.is_plain else self.bind_text


def parse_listeners(settings: Mapping[str, str]) -> Listeners:
    """Returns the listeners that Kafka's settings define, of which `listeners` must be given. Raises InvalidConfig.

    >>> settings = {"listeners": "SSL://0.0.0.0:9093", "advertised.listeners": "SSL://queue.example.org:9093"}
    >>> parse_listeners(settings).all[0].advertised
    Address(host='queue.example.org', port=9093)
    """
    protocols = _protocol_map(settings.get(PROTOCOL_MAP, ""))
    controllers = {name.strip().upper() for name in settings.get(CONTROLLER_NAMES, "").split(",")}
    text = settings[LISTENERS]
    bound = {name: at for name, at in _endpoints(LISTENERS, text).items() if name not in controllers}
    if not bound:
        raise InvalidConfig(f"listeners={text} has no listener for clients; give one, such as {_EXAMPLE}")
    _check_ports(bound)
    advertised_text = settings.get(ADVERTISED_LISTENERS, "").strip()
    advertised = _endpoints(ADVERTISED_LISTENERS, advertised_text) if advertised_text else bound
    advertised = {name: at for name, at in advertised.items() if name not in controllers}
    for name in advertised:
        if name not in bound:
            raise InvalidConfig(
                f"advertised.listeners has {name}, which listeners has not; it has {', '.join(bound)}: add the "
                "listener there, or remove it here"
            )
    for name in bound:
        if name not in protocols:
            raise InvalidConfig(
                f"listener {name} has no security protocol; add it to {PROTOCOL_MAP}, for example {name}:SSL"
            )
    found = tuple(
        Listener(name=name, protocol=protocols[name], bind=at, advertised=advertised.get(name))
        for name, at in bound.items()
    )
    return Listeners(all=found, inter_broker=_inter_broker(settings, advertised))


def _protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Parses `listener.security.protocol.map`. Without one, a listener is named like its protocol."""
    if not text.strip():
        return {protocol.value: protocol for protocol in SecurityProtocol}
    found: dict[str, SecurityProtocol] = {}
    for entry in text.split(","):
        name, colon, protocol = entry.strip().upper().rpartition(":")
        if not colon or protocol not in SecurityProtocol.__members__:
            raise InvalidConfig(
                f"{PROTOCOL_MAP} has {entry.strip()!r}; expected NAME:PROTOCOL with a protocol of "
                f"{', '.join(SecurityProtocol.__members__)}"
            )
        if name in found:
            raise InvalidConfig(f"{PROTOCOL_MAP} has listener {name} twice; remove one")
        found[name] = SecurityProtocol[protocol]
    return found


def _endpoints(setting: str, text: str) -> dict[str, Address]:
    """Parses `NAME://HOST:PORT,…` to addresses by listener name. No host means all addresses, as in Kafka."""
    found: dict[str, Address] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, slashes, at = entry.partition("://")
        name = name.upper()
        try:
            if not slashes or not _NAME.fullmatch(name):
                raise ValueError(entry)
            address = Address.parse(f"{ANYWHERE}{at}" if at.startswith(":") else at)
        except ValueError:
            raise InvalidConfig(f"{setting} has {entry!r}; expected NAME://HOST:PORT, such as {_EXAMPLE}") from None
        if name in found:
            raise InvalidConfig(f"{setting} has listener {name} twice; give each listener its own name")
        found[name] = address
    return found


def _check_ports(bound: Mapping[str, Address]) -> None:
    taken: dict[int, tuple[str, Address]] = {}
    for name, address in bound.items():
        if not address.port:
            continue
        other = taken.get(address.port)
        if other is not None and _ip_version(address) + _ip_version(other[1]) != 4 + 6:
            raise InvalidConfig(
                f"listeners {other[0]} and {name} both have port {address.port}; give each listener its own port"
            )
        taken[address.port] = name, address


def _ip_version(address: Address) -> int:
    """Returns 4 or 6; 0 for a host name. Two listeners may share a port if one is of IPv4 and one of IPv6."""
    try:
        return ip_address(address.host).version
    except ValueError:
        return 0


def _inter_broker(settings: Mapping[str, str], advertised: Collection[str]) -> str:
    """Returns the name of the inter-broker listener; a broker's only listener if the settings name none."""
    name = settings.get(INTER_BROKER_NAME, "").strip().upper()
    protocol = settings.get(INTER_BROKER_PROTOCOL, "").strip().upper()
    if name and protocol:
        raise InvalidConfig(f"{INTER_BROKER_NAME} and {INTER_BROKER_PROTOCOL} exclude each other; remove one of them")
    if protocol and protocol not in SecurityProtocol.__members__:
        raise InvalidConfig(
            f"{INTER_BROKER_PROTOCOL}={protocol} is not allowed; expected one of "
            f"{', '.join(SecurityProtocol.__members__)}"
        )
    found = name or protocol or (next(iter(advertised)) if len(advertised) == 1 else PLAINTEXT)
    if found not in advertised:
        raise InvalidConfig(
            f"brokers connect to each other on listener {found}, which is not an advertised listener; set "
            f"{INTER_BROKER_NAME} to one of {', '.join(advertised)}"
        )
    return found
