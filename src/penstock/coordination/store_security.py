"""How brokers connect to ZooKeeper or etcd: TLS and a login, from a file with properties as Kafka clients have."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.properties import read_properties
from penstock.foundation.secret_references import resolve_all
from penstock.foundation.security_protocol import SecurityProtocol
from penstock.foundation.tls_context import TlsContext
from penstock.foundation.tls_settings import CIPHERS, KEY_PASSWORD, KEYSTORE, REVOKED, TRUSTSTORE, TlsSettings

PROTOCOL: Final = "security.protocol"
USERNAME: Final = "sasl.username"
PASSWORD: Final = "sasl.password"
SET_ACL: Final = "zookeeper.set.acl"
_NAMES: Final = (PROTOCOL, USERNAME, PASSWORD, SET_ACL)
_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----\n?", re.DOTALL)
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSecurity:
    """TLS and login of connections to a store. Passwords are left out of its text form."""

    tls: TlsSettings | None = None
    """None if connections are not encrypted. All files are PEM files."""
    username: str = ""
    """Empty if brokers do not log in, or by their certificates alone."""
    password: str = field(default="", repr=False)
    sets_acl: bool = False
    """ZooKeeper only: whether nodes that brokers create are for the user alone."""

    @classmethod
    def read(cls, file: Path | None) -> "StoreSecurity":
        """Returns what the file says; without a file, neither TLS nor a login. Raises InvalidConfig."""
        return cls() if file is None else cls.parse(read_properties(file))

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "StoreSecurity":
        """Raises InvalidConfig.

        >>> StoreSecurity.parse({"sasl.username": "penstock", "sasl.password": "x"}).sets_acl
        True
        """
        properties = resolve_all(given)
        for name in properties:
            if name not in _NAMES and not name.startswith("ssl."):
                raise InvalidConfig(f"{name} is not a property of stores; known are {', '.join(_NAMES)} and ssl.…")
        for name in (CIPHERS, REVOKED):
            if properties.get(name):
                raise InvalidConfig(f"{name} is not supported for stores; remove it")
        username, password = properties.get(USERNAME, ""), properties.get(PASSWORD, "")
        if bool(username) != bool(password):
            raise InvalidConfig(f"{USERNAME} and {PASSWORD} belong together; give both or none")
        set_acl = properties.get(SET_ACL, "true" if username else "false").strip().lower()
        if set_acl not in ("true", "false") or (set_acl == "true" and not username):
            raise InvalidConfig(f"{SET_ACL}={set_acl} is not allowed; expected true, with {USERNAME}, or false")
        return cls(
            tls=_tls(properties) if _protocol(properties).is_tls else None,
            username=username,
            password=password,
            sets_acl=set_acl == "true",
        )

    @property
    def trusted(self) -> bytes | None:
        """Returns the certificates of trusted authorities; None for those of the system."""
        return None if self.tls is None or not self.tls.truststore else Path(self.tls.truststore).read_bytes()

    @property
    def key(self) -> bytes | None:
        """Returns the private key; None without one."""
        return self._part(_KEY)

    @property
    def chain(self) -> bytes | None:
        """Returns the certificates that belong to the private key; None without one."""
        return self._part(_CERTIFICATE)

    def _part(self, pattern: re.Pattern[bytes]) -> bytes | None:
        if self.tls is None or not self.tls.keystore:
            return None
        return b"".join(pattern.findall(Path(self.tls.keystore).read_bytes()))


def _protocol(properties: Mapping[str, str]) -> SecurityProtocol:
    name = properties.get(PROTOCOL, SecurityProtocol.PLAINTEXT).strip().upper()
    if name not in SecurityProtocol.__members__:
        raise InvalidConfig(
            f"{PROTOCOL}={name} is not allowed; expected one of {', '.join(SecurityProtocol.__members__)}"
        )
    if SecurityProtocol[name].is_sasl and not properties.get(USERNAME):
        raise InvalidConfig(f"{PROTOCOL}={name} needs {USERNAME} and {PASSWORD}")
    return SecurityProtocol[name]


def _tls(properties: Mapping[str, str]) -> TlsSettings:
    """Returns the settings of TLS. Reads the files, so that broken ones are refused."""
    tls = TlsSettings.parse({name: text for name, text in properties.items() if name.startswith("ssl.")})
    if tls.key or tls.trusted:
        raise InvalidConfig(f"stores need certificates in files; set {KEYSTORE} and {TRUSTSTORE}")
    if tls.key_password:
        raise InvalidConfig(f"{KEY_PASSWORD} is not supported for stores; decrypt the key, in a file of mode 0600")
    TlsContext(tls, server_side=False)
    return tls
