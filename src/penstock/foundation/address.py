"""A network address: host and port."""

from dataclasses import dataclass
from ipaddress import ip_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parses `HOST:PORT`, also `[::1]:PORT`. Raises ValueError.

        >>> Address.parse("127.0.0.1:9092").port
        9092
        """
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{text!r} is not HOST:PORT, for example 127.0.0.1:9092")
        return cls(host=host.strip("[]") or "127.0.0.1", port=int(port))

    def advertised_as(self, host: str) -> "Address":
        """Returns the address to advertise: `host` and this port if this is the wildcard address, else this address.

        >>> str(Address.parse("0.0.0.0:9324").advertised_as("queue.example.org"))
        'queue.example.org:9324'
        """
        return Address(host=host, port=self.port) if self.host in ("0.0.0.0", "::") else self

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect to the address.

        >>> Address.parse("localhost:9092").is_local, Address.parse("0.0.0.0:9092").is_local
        (True, False)
        """
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
