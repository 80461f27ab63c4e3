"""Broker addresses: HOST:PORT, and parsing of a bootstrap server list."""

from typing import Final, NamedTuple

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """Parses `HOST:PORT[,HOST:PORT…]`; returns the addresses in order, without duplicates. Raises ValueError.

    >>> parse_bootstrap("queue-1:9092,[::1]:9093")[1].port
    9093
    """
    found: dict[Address, None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not HOST:PORT, for example {BOOTSTRAP_DEFAULT}")
        found[Address(host.strip("[]"), int(port))] = None
    if not found:
        raise ValueError(f"the broker list is empty; give HOST:PORT, for example {BOOTSTRAP_DEFAULT}")
    return tuple(found)
