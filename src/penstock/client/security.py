"""Security settings of clients, by the names of Kafka's client properties."""

from collections.abc import Mapping
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.jaas import parse_jaas
from penstock.foundation.kerberos_settings import GSSAPI, KERBEROS_PROPERTIES, TicketSource, librdkafka_tickets
from penstock.foundation.oauth_settings import OAUTH_PROPERTIES, OAUTHBEARER, TokenSource, librdkafka_tokens
from penstock.foundation.sasl_settings import (
    JAAS,
    LOGIN_MODULES,
    TOKEN_AUTH,
    SaslLogin,
    check_module,
    inter_broker_login,
    is_token_login,
    login_of,
)
from penstock.foundation.secret_references import resolve_all
from penstock.foundation.security_protocol import SecurityProtocol
from penstock.foundation.tls_context import TlsContext
from penstock.foundation.tls_settings import (
    CHAIN,
    CLIENT_AUTH,
    HOST_CHECK,
    KEY,
    KEY_PASSWORD,
    KEYSTORE,
    MAPPING_RULES,
    REVOKED,
    TLS_SETTINGS,
    TRUSTED,
    TRUSTSTORE,
    TlsSettings,
)

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
_MECHANISMS: Final = "sasl.mechanisms"
USERNAME: Final = "sasl.username"
PASSWORD: Final = "sasl.password"
_OF_LISTENERS: Final = (CLIENT_AUTH, MAPPING_RULES)


CLIENT_PROPERTIES: Final = frozenset(
    [PROTOCOL, MECHANISM, _MECHANISMS, JAAS, USERNAME, PASSWORD]
    + [setting.name for setting in TLS_SETTINGS if setting.name not in _OF_LISTENERS]
    + [*OAUTH_PROPERTIES, *KERBEROS_PROPERTIES]
)
"""The names of all properties of clients that are about security."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """How a client secures its connections to brokers."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsContext | None = None
    """None if connections are not encrypted."""
    login: SaslLogin | None = None
    """None if the client does not log in."""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> "SecuritySettings":
        """Returns the settings that Kafka's client properties define; properties about other things are ignored.
        Reads the named files, and replaces references to secrets. Raises InvalidConfig.

        >>> SecuritySettings.parse({"security.protocol": "PLAINTEXT", "client.id": "orders"}).protocol
        <SecurityProtocol.PLAINTEXT: 'PLAINTEXT'>
        """
        properties = resolve_all(properties)
        name = properties.get(PROTOCOL, SecurityProtocol.PLAINTEXT).strip().upper()
        if name not in SecurityProtocol.__members__:
            raise InvalidConfig(
                f"{PROTOCOL}={name} is not allowed; expected one of {', '.join(SecurityProtocol.__members__)}"
            )
        protocol = SecurityProtocol[name]
        login = _login(properties, name) if protocol.is_sasl else None
        given = {name: text for name, text in properties.items() if name.startswith("ssl.")}
        for name in given:
            if name not in TLS_SETTINGS.by_name or name in _OF_LISTENERS:
                raise InvalidConfig(f"{name} is not a setting of clients; remove it")
        if not protocol.is_tls:
            return cls(protocol=protocol, login=login)
        return cls(protocol=protocol, tls=TlsContext(TlsSettings.parse(given), server_side=False), login=login)

    @classmethod
    def between_brokers(
        cls, values: Mapping[str, str], listener: str, protocol: SecurityProtocol
    ) -> "SecuritySettings":
        """Returns how brokers connect to each other on this listener, by their own settings. Raises InvalidConfig."""
        tls = TlsSettings.parse(values, listener) if protocol.is_tls else None
        return cls(
            protocol=protocol,
            tls=None if tls is None else TlsContext(tls, server_side=False),
            login=inter_broker_login(values, listener) if protocol.is_sasl else None,
        )

    @property
    def context(self) -> SSLContext | None:
        """Returns the TLS context for a new connection; None for an unencrypted one."""
        return None if self.tls is None else self.tls.current


def _login(properties: Mapping[str, str], protocol: str) -> SaslLogin:
    """Returns the user of a client: from its JAAS configuration, or from the names that librdkafka uses."""
    mechanism = (properties.get(MECHANISM) or properties.get(_MECHANISMS, "")).strip().upper()
    if mechanism not in LOGIN_MODULES:
        raise InvalidConfig(
            f"{PROTOCOL}={protocol} needs {MECHANISM}, one of {', '.join(LOGIN_MODULES)}; it is "
            f"{mechanism or 'not set'}"
        )
    text = properties.get(JAAS, "").strip()
    if mechanism == OAUTHBEARER:
        return SaslLogin(mechanism=mechanism, tokens=_tokens(properties))
    if mechanism == GSSAPI:
        return SaslLogin(mechanism=mechanism, tickets=_tickets(properties))
    if text:
        return login_of(JAAS, mechanism, parse_jaas(JAAS, text))
    username, password = properties.get(USERNAME, ""), properties.get(PASSWORD, "")
    if not (username and password):
        raise InvalidConfig(
            f"{PROTOCOL}={protocol} needs a user; set {USERNAME} and {PASSWORD}, or {JAAS} as for Java clients"
        )
    return SaslLogin(mechanism=mechanism, username=username, password=password)


def _tokens(properties: Mapping[str, str]) -> TokenSource:
    text = properties.get(JAAS, "").strip()
    return TokenSource.parse(properties, parse_jaas(JAAS, text).options if text else {})


def _tickets(properties: Mapping[str, str]) -> TicketSource:
    text = properties.get(JAAS, "").strip()
    module = parse_jaas(JAAS, text) if text else None
    if module is not None:
        check_module(JAAS, GSSAPI, module)
    return TicketSource.parse(properties, module)


PLAINTEXT: Final = SecuritySettings()


_LIBRDKAFKA: Final[Mapping[str, tuple[str, ...]]] = {
    PROTOCOL: (PROTOCOL,),
    TRUSTSTORE: ("ssl.ca.location",),
    TRUSTED: ("ssl.ca.pem",),
    KEYSTORE: ("ssl.certificate.location", "ssl.key.location"),
    CHAIN: ("ssl.certificate.pem",),
    KEY: ("ssl.key.pem",),
    KEY_PASSWORD: (KEY_PASSWORD,),
    REVOKED: ("ssl.crl.location",),
    HOST_CHECK: (HOST_CHECK,),
    MECHANISM: (MECHANISM,),
    _MECHANISMS: (MECHANISM,),
    USERNAME: (USERNAME,),
    PASSWORD: (PASSWORD,),
}
"""librdkafka's names of Kafka's client properties. The file of a key store has both the key and its certificates."""


def librdkafka_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the security properties of a Kafka client under the names of librdkafka, which confluent-kafka uses.
    Raises InvalidConfig for a login that it does not have.

    >>> librdkafka_options({"security.protocol": "SSL", "ssl.truststore.location": "ca.pem"})
    {'security.protocol': 'SSL', 'ssl.ca.location': 'ca.pem'}
    """
    properties = resolve_all(properties)
    found = {ours: text for name, text in properties.items() for ours in _LIBRDKAFKA.get(name, ())}
    if HOST_CHECK in found and not found[HOST_CHECK]:
        found[HOST_CHECK] = "none"
    if OAUTHBEARER in (properties.get(MECHANISM), properties.get(_MECHANISMS)):
        found |= librdkafka_tokens(_tokens(properties))
    elif GSSAPI in (properties.get(MECHANISM), properties.get(_MECHANISMS)):
        found |= librdkafka_tickets(_tickets(properties))
    elif properties.get(JAAS, "").strip():
        module = parse_jaas(JAAS, properties[JAAS])
        if is_token_login(module):
            raise InvalidConfig(
                f"{JAAS} has {TOKEN_AUTH}=true, but confluent-kafka cannot log in with delegation tokens; log in as "
                "a user here, and use tokens with Java clients, Spark's Kafka source and `penstock --command-config`"
            )
        options = module.options
        found |= {USERNAME: options.get("username", ""), PASSWORD: options.get("password", "")}
    return found
