"""The listen sockets of a broker: one for each Kafka listener and one for HTTP, with TLS where it is configured."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from penstock.client.security import SecuritySettings
from penstock.cluster import keys
from penstock.cluster.listeners import Listeners
from penstock.cluster.metadata import Metadata
from penstock.cluster.settings import HTTP_PROTOCOL
from penstock.cluster.token_registry import DelegationTokens
from penstock.foundation.access_key_settings import read_secret_keys
from penstock.foundation.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.foundation.address import Address
from penstock.foundation.authorizer_settings import (
    AUDIT_BYTES,
    AUDIT_BYTES_DEFAULT,
    AuthorizerSettings,
    audited_kinds,
)
from penstock.foundation.clock import SystemClock
from penstock.foundation.delegation_settings import DelegationSettings
from penstock.foundation.descriptors import Reserve
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.oauth_settings import OAUTHBEARER, TokenRules
from penstock.foundation.sasl_settings import SaslSettings
from penstock.foundation.security_protocol import SecurityProtocol
from penstock.foundation.tls_context import TlsContext
from penstock.foundation.tls_settings import ClientAuth, TlsSettings
from penstock.network.http_connection import HttpConnection
from penstock.network.http_listener import HttpListener
from penstock.network.kafka_connection import KafkaConnection
from penstock.network.kafka_listener import KafkaListener
from penstock.network.listen_socket import bind, bind_sockets
from penstock.network.login_connection import LoginConnection, Logins
from penstock.network.tls_connection import TlsConnection
from penstock.network.tls_server import TlsServer
from penstock.security.accounts import Accounts
from penstock.security.audit import AuditLog, Kind
from penstock.security.audit_file import AuditFile
from penstock.security.authorizer import Authorizer
from penstock.security.certificate_principal import ANONYMOUS, PrincipalOf, no_certificate, principal_mapper
from penstock.security.delegation_logins import DelegationLogins
from penstock.security.exchanges import ChecksTokens
from penstock.security.kerberos_logins import KerberosLogins
from penstock.security.login_sessions import FailedLogins, LoginServer
from penstock.security.stored_keys import StoredKeys

logger = logging.getLogger(__name__)

SECRET_BYTES: Final = 32
HTTP: Final = "HTTP"
"""The name by which `listener.name.http.…` sets the TLS settings of the HTTP port."""


class Servers:
    """Binds all listen sockets of a broker, and exchanges certificates when their files change."""

    def __init__(
        self,
        listeners: Listeners,
        values: Mapping[str, str],
        metadata: Callable[[], Metadata],
        refused: Callable[[str], None],
        audit_folder: Path,
    ) -> None:
        """`values`: broker settings by name. Reads the certificates; raises InvalidConfig if they cannot be used.
        `metadata` returns the metadata of this broker once it follows the store. `refused` is called with the reason
        for each connection that is closed before it is established."""
        self.listeners = listeners
        self._refused = refused
        self._login_thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-login")
        """Checks passwords and tickets. It has a thread of its own, so that many logins delay only other logins."""
        self.tokens: Final = DelegationTokens(DelegationSettings.parse(values), metadata, SystemClock())
        self.access_keys: Final = _stored_keys(values, listeners, metadata)
        self._audit_file: AuditFile | None = None
        self.audit: AuditLog | None = None
        if kinds := audited_kinds(values):
            bytes_max = int(values.get(AUDIT_BYTES, AUDIT_BYTES_DEFAULT))
            self._audit_file = AuditFile(audit_folder, bytes_max)
            self.audit = AuditLog(self._audit_file.write, time.monotonic, frozenset(map(Kind, kinds)))
        self.authorizer: Final = _authorizer(values, metadata)
        of_logins = {each.name: SaslSettings.parse(values, each.name) for each in listeners if each.protocol.is_sasl}
        self._tickets = {
            name: KerberosLogins(settings.kerberos, self._login_thread)
            for name, settings in of_logins.items()
            if settings.kerberos is not None
        }
        self._login_servers = self._create_login_servers(of_logins, metadata)
        self._tls = {
            each.name: _server_context(TlsSettings.parse(values, each.name), each.name)
            for each in listeners
            if each.protocol.is_tls
        }
        self._principals = {name: _principal_of(tls.settings) for name, tls in self._tls.items()}
        self._http_tls: TlsContext | None = None
        if values.get(HTTP_PROTOCOL) == SecurityProtocol.SSL:
            self._http_tls = _server_context(TlsSettings.parse(values, HTTP), HTTP)
        own = listeners[listeners.inter_broker]
        self.inter_broker: Final = SecuritySettings.between_brokers(values, own.name, own.protocol)
        """How this broker connects to other brokers."""
        self._servers: list[asyncio.Server | TlsServer] = []
        self._logins: Logins | None = None

    def _create_login_servers(
        self, of_logins: Mapping[str, SaslSettings], metadata: Callable[[], Metadata]
    ) -> dict[str, LoginServer]:
        """Returns what the logins of each listener with SASL have in common."""
        delegation = DelegationLogins(self.tokens, self._login_thread) if self.tokens.is_enabled else None
        accounts = Accounts(lambda: metadata().image.users, lambda: metadata().image.login_secret, self._login_thread)
        failed = FailedLogins(self._refused)
        return {
            name: LoginServer(
                listener=name,
                settings=settings,
                accounts=accounts,
                failed=failed,
                audit=self.audit,
                tokens=None if settings.tokens is None else _bearer_tokens(settings.tokens),
                delegation=delegation,
                tickets=self._tickets.get(name),
            )
            for name, settings in of_logins.items()
        }

    async def prepare(self, metadata: Metadata) -> None:
        """Creates the secret that all brokers need for logins, unless another broker has, or no listener has SASL.
        Warns if brokers may not do what they must do between them, or cannot use access keys in the store."""
        metadata.listeners.append(lambda image: self.access_keys.follow())
        self.access_keys.follow()
        if self._login_servers:
            await metadata.edit(keys.LOGIN_SECRET, lambda known: known or secrets.token_hex(SECRET_BYTES))
        principal, authorizer = self._own_principal(), self.authorizer
        if authorizer is None or principal is None:
            return
        host = self.listeners[self.listeners.inter_broker].bind.host
        if not authorizer.allows(principal, host, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            logger.warning(
                "broker_is_not_authorized principal=%r reason='brokers cannot replicate; add it to super.users, or "
                "let brokers log in as one of them (inter.broker.listener.name)'",
                principal,
            )

    def _own_principal(self) -> str | None:
        """Returns the principal that this broker has for others; None if that depends on a certificate or token."""
        if self.inter_broker.login is not None:
            name: str | None = self.inter_broker.login.username
            if self.inter_broker.login.tickets is not None:
                name = self._tickets[self.listeners.inter_broker].user  # both have the same key
            return f"User:{name}" if name else None
        return ANONYMOUS if self.inter_broker.tls is None else None

    @property
    def http_has_tls(self) -> bool:
        return self._http_tls is not None

    def authenticates(self, name: str) -> bool:
        """Whether only users, or clients with a certificate of a trusted authority, can use the Kafka listener."""
        if name in self._login_servers:
            return True
        tls = self._tls.get(name)
        return tls is not None and tls.settings.client_auth is ClientAuth.REQUIRED

    async def bind(self, kafka: KafkaListener, http: HttpListener, http_address: Address) -> Address:
        """Binds all sockets, which do not accept connections yet; `listeners` then has the bound ports. Returns the
        bound address of HTTP. Raises CannotListen."""
        option = "--listen" if self.listeners.is_plain else "listener"
        bound = []
        self._logins = Logins(kafka)
        for each in self.listeners:
            tls, reserve = self._tls.get(each.name), Reserve.KAFKA_CONNECTIONS
            factory = self._factory(each.name, kafka, self._logins)
            bound.append(each.bound(await self._bind(factory, each.bind, tls, each.name, option, reserve)))
        self.listeners = Listeners(all=tuple(bound), inter_broker=self.listeners.inter_broker)
        factory_http = partial(HttpConnection, http)
        reserve = Reserve.HTTP_CONNECTIONS
        port = await self._bind(factory_http, http_address, self._http_tls, HTTP, "--http", reserve)
        bound_http = Address(host=http_address.host, port=port)
        kafka.http, http.kafka = str(bound_http), str(self.listeners.all[0].bind)
        return bound_http

    def _factory(self, name: str, kafka: KafkaListener, logins: Logins) -> Callable[[], asyncio.BaseProtocol]:
        """Returns the function that creates the protocol of a new connection of a Kafka listener."""
        connect: Callable[..., KafkaConnection] = partial(KafkaConnection, kafka, name)
        if name in self._tls:
            connect = partial(TlsConnection, kafka, name, self._principals[name])
        server = self._login_servers.get(name)
        if server is None:
            return connect
        return partial(LoginConnection, logins, server, lambda login: connect(login=login))

    async def _bind(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        address: Address,
        tls: TlsContext | None,
        name: str,
        option: str,
        reserve: Reserve,
    ) -> int:
        server: asyncio.Server | TlsServer
        if tls is None:
            server = await bind(factory, address, option)
        else:
            sockets = await bind_sockets(address, option)
            server = TlsServer(sockets, factory, tls, name=name, refused=self._refused, reserve=reserve)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def start_serving(self) -> None:
        for server in self._servers:
            await server.start_serving()

    def close(self) -> None:
        """Stops accepting connections."""
        for server in self._servers:
            server.close()
        if self._logins is not None:
            self._logins.close()
        self._login_thread.shutdown(wait=False, cancel_futures=True)

    def close_audit(self) -> None:
        """Writes the last events of the audit log. Blocks."""
        if self.audit is not None and self._audit_file is not None:
            self.audit.flush(all_of_them=True)
            self._audit_file.close()

    @property
    def audit_events_lost(self) -> int:
        return 0 if self._audit_file is None else self._audit_file.lost

    def reload_certificates(self) -> None:
        """Reads files of keys and certificates again if they have changed; new connections then use the new ones."""
        for tls in self._contexts():
            tls.reload()

    def _contexts(self) -> Iterator[TlsContext]:
        yield from self._tls.values()
        if self._http_tls is not None:
            yield self._http_tls
        if self.inter_broker.tls is not None:
            yield self.inter_broker.tls


def _stored_keys(values: Mapping[str, str], listeners: Listeners, metadata: Callable[[], Metadata]) -> StoredKeys:
    with_tls = frozenset(each.name for each in listeners if each.protocol.is_tls)
    return StoredKeys(read_secret_keys(values), lambda: metadata().image.access_keys, with_tls)


def _server_context(settings: TlsSettings, name: str) -> TlsContext:
    settings.check_server(name)
    return TlsContext(settings, server_side=True)


def _bearer_tokens(rules: TokenRules) -> ChecksTokens:
    try:
        from penstock.security.bearer_tokens import BearerTokens
        from penstock.security.issuer_keys import IssuerKeys
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            f"{OAUTHBEARER} needs {error.name}, which is not installed; run: pip install 'penstock[security]'"
        ) from error
    return BearerTokens(rules, IssuerKeys(rules))


def _authorizer(values: Mapping[str, str], metadata: Callable[[], Metadata]) -> Authorizer | None:
    settings = AuthorizerSettings.parse(values)
    if settings is None:
        return None
    return Authorizer(lambda: metadata().image.acls, settings.super_users, allow_if_none=settings.allow_if_none)


def _principal_of(settings: TlsSettings) -> PrincipalOf:
    return no_certificate if settings.client_auth is ClientAuth.NONE else principal_mapper(settings.mapping_rules)
