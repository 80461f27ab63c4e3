"""The server's side of GSSAPI logins (RFC 4752): checks Kerberos tickets with the key of this broker.

GSS-API reads the keytab and the replay cache: all of its calls run on the thread of logins.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.gss import load_gssapi, reason_of
from penstock.foundation.kerberos_settings import GSSAPI, KerberosKey
from penstock.security.errors import LoginFailed, PrincipalRefused
from penstock.security.kerberos_principal import local_names

TOKEN_BYTES_MAX: Final = 128 << 10
"""The size of a token. Those of Windows, with many groups, have up to 64 KiB."""
NO_LAYER: Final = 1
"""The bit that stands for "no security layer": connections are protected by TLS, as with all other mechanisms."""
_LAYER_BYTES: Final = 4
"""One byte for the layer, three for the largest message, which has no meaning without a layer."""
REFUSAL: Final = (
    f"Authentication failed during authentication due to invalid credentials with SASL mechanism {GSSAPI}"
)
"""Kafka's message, which says nothing about why the login failed."""


class KerberosLogins:
    """Accepts the tickets of clients of one listener."""

    def __init__(self, key: KerberosKey, threads: Executor) -> None:
        """Reads the keytab. Raises InvalidConfig if it does not have the key."""
        self._gss = gss = load_gssapi()
        self._threads = threads
        try:
            name = gss.Name(key.principal, gss.NameType.kerberos_principal)
            # Only this mechanism: with SPNEGO or IAKERB, a client would choose what else this broker does.
            self._credentials = gss.Credentials(
                name=name, usage="accept", mechs=[gss.MechType.kerberos], store={"keytab": key.keytab}
            )
            self._principal = str(name.canonicalize(gss.MechType.kerberos))
        except gss.exceptions.GSSError as error:
            raise InvalidConfig(
                f"the key of {key.principal} in {key.keytab} cannot be used: {reason_of(error)}; `klist -k "
                f"{key.keytab}` shows the keys of the file"
            ) from error
        self._local_name = local_names(key.rules, _default_realm(gss))
        self._service = key.principal.partition("@")[0].partition("/")[0]

    def exchange(self) -> "KerberosExchange":
        return KerberosExchange(self)

    @property
    def user(self) -> str | None:
        """Returns the user that this broker is for others with the same settings; None if no rule applies to it."""
        try:
            return self._local_name(self._principal)
        except PrincipalRefused:
            return None

    async def run(self, work: Callable[[], bytes | None]) -> bytes | None:
        """Calls a function on the thread of logins. Raises LoginFailed, also for errors of GSS-API."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, work)

    def _call(self, work: Callable[[], bytes | None]) -> bytes | None:
        try:
            return work()
        except self._gss.exceptions.GSSError as error:
            raise refused(reason_of(error)) from error  # here: only this thread has the whole text

    def context(self) -> Any:
        """Returns a new security context."""
        context = self._gss.SecurityContext(creds=self._credentials, usage="accept")
        # Without this, an error that has a message for the client is raised only by the next call.
        context.__DEFER_STEP_ERRORS__ = False
        return context

    def principal_of(self, context: Any) -> str:
        """Returns the client of an established context. Raises LoginFailed."""
        if context.mech != self._gss.MechType.kerberos:
            raise refused("the mechanism is not Kerberos")
        try:
            return str(context.initiator_name)
        except UnicodeDecodeError as error:
            raise refused("the principal is not UTF-8 text") from error

    def user_of(self, principal: str) -> str:
        """Returns the user of a principal. Raises LoginFailed if no rule applies to it."""
        try:
            return self._local_name(principal)
        except PrincipalRefused as error:
            raise refused(str(error)) from error

    def is_client_or_service(self, authzid: str, principal: str, user: str) -> bool:
        """Whether an authorization id names the client itself, or this service: kafka-python and aiokafka send
        SERVICE@HOST. Kafka ignores the id."""
        service, _, host = authzid.partition("@")
        is_service = service == self._service and host not in ("", self._principal.rpartition("@")[2])
        return authzid in ("", principal, user, self._principal) or is_service


class KerberosExchange:
    """GSSAPI: the client sends a ticket, and both sides agree on a security layer, which is none."""

    def __init__(self, logins: KerberosLogins) -> None:
        self.user = ""
        self.is_done = False
        self.expires_s: float | None = None
        """Like in Kafka, a session does not end with its ticket, only by `connections.max.reauth.ms`."""
        self.token_id = ""
        self._logins = logins
        self._context: Any = None
        self._principal = ""
        self._next = KerberosExchange._establish  # not bound: without a cycle, the context goes with the connection

    async def step(self, token: bytes) -> bytes | None:
        if len(token) > TOKEN_BYTES_MAX:
            raise refused(f"the message has more than {TOKEN_BYTES_MAX:,} bytes")
        return await self._logins.run(lambda: self._handle(token))

    def _handle(self, token: bytes) -> bytes | None:
        handle, self._next = self._next, KerberosExchange._refuse  # unless this message is as it must be
        return handle(self, token)

    def _refuse(self, token: bytes) -> bytes | None:
        raise refused("the client has sent a message after the end of the login")

    def _establish(self, token: bytes) -> bytes | None:
        """Checks the ticket; returns the proof that this broker has the key of the service, if it is asked for."""
        self._context = context = self._logins.context()
        answer: bytes | None = context.step(token)
        if not context.complete:
            raise refused("the client wants a login of three messages (DCE)")
        self._principal = self.user = self._logins.principal_of(context)
        self.user = self._logins.user_of(self._principal)
        if not answer:
            return self._offer(b"")
        self._next = KerberosExchange._offer
        return answer

    def _offer(self, token: bytes) -> bytes | None:
        """Offers the security layers of this broker: none."""
        if token:
            raise refused("the client has sent a token after the last one")
        self._next = KerberosExchange._choose
        offer: bytes = self._context.wrap(bytes([NO_LAYER, 0, 0, 0]), False).message
        return offer

    def _choose(self, token: bytes) -> bytes | None:
        """Checks the layer that the client has chosen, and as whom it wants to act."""
        answer: bytes = self._context.unwrap(token).message
        if len(answer) < _LAYER_BYTES or answer[0] != NO_LAYER:
            raise refused("the client has chosen a security layer that was not offered (sasl.qop)")
        try:
            authzid = answer[_LAYER_BYTES:].decode()
        except UnicodeDecodeError as error:
            raise refused("the authorization id is not UTF-8 text") from error
        if not self._logins.is_client_or_service(authzid, self._principal, self.user):
            raise refused("the client wants to act as another user")
        self.is_done = True
        return None


def refused(reason: str) -> LoginFailed:
    return LoginFailed(REFUSAL, reason)


def _default_realm(gss: Any) -> str:
    """Returns the default realm of krb5.conf; empty if there is none."""
    try:
        name = gss.Name("name", gss.NameType.kerberos_principal).canonicalize(gss.MechType.kerberos)
        return str(name).rpartition("@")[2]
    except gss.exceptions.GSSError:
        return ""
