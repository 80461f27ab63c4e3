"""GSSAPI logins of clients (RFC 4752), with Kerberos tickets of a keytab or of a ticket cache.

GSS-API waits for the KDC, and reads files: all of its calls run on threads of their own.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from penstock.client.errors import ConnectionFailed, LoginRefused
from penstock.client.kerberos_tickets import TicketCache
from penstock.client.krb5 import realm_of
from penstock.foundation.daemon_threads import DaemonThreads
from penstock.foundation.gss import load_gssapi, reason_of
from penstock.foundation.kerberos_settings import TicketSource

THREADS_MAX: Final = 4
"""While a KDC does not answer, a call takes half a minute: other logins wait."""
KDC_S: Final = 4.0
"""How long a login waits for a ticket: less than for the broker, so that the error names the KDC."""
_NO_LAYER: Final = 1
_LAYER_BYTES: Final = 4
_KDC_UNREACHABLE: Final = (-1765328228, -1765328230)
"""Codes of MIT Kerberos: no KDC of the realm answers, or its address is not found."""
_THREADS: Final = DaemonThreads(THREADS_MAX, "penstock-kerberos")
_TICKETS: Final = TicketCache(_THREADS)


class KerberosLogin:
    """One login with tickets. Each step is called with a message of the broker, and returns the next one."""

    def __init__(self, source: TicketSource, host: str, address: object) -> None:
        """`host`: as the client connects to it. The broker's principal is SERVICE/HOST."""
        self._source = source
        self._host = host
        self._address = address
        self._gss: Any = None
        self._context: Any = None

    async def start(self) -> bytes:
        """Returns the first message, which has a ticket.

        Raises LoginRefused if there is no ticket, ConnectionFailed if no KDC answers.
        """
        try:
            async with asyncio.timeout(KDC_S):
                return await self._run(self._start)
        except TimeoutError:
            raise ConnectionFailed(
                f"there is no ticket for {self._source.service}/{self._host.lower()}: no KDC has answered within "
                f"{KDC_S:g} s; is the KDC in krb5.conf, and does it run?"
            ) from None

    async def replace_tickets(self) -> None:
        """Gets new tickets for the next login: the broker has refused this one, and may have got another key."""
        await asyncio.wrap_future(_THREADS.submit(lambda: _TICKETS.replace(self._source)))

    async def check_server(self, token: bytes) -> bytes:
        """Checks that the broker has the key of its principal; returns the next message."""
        return await self._run(lambda: self._check_server(token))

    async def choose_layer(self, token: bytes) -> bytes:
        """Returns the last message: no security layer, and no other user to act as."""
        return await self._run(lambda: self._choose_layer(token))

    async def _run(self, work: Callable[[], bytes]) -> bytes:
        return await asyncio.wrap_future(_THREADS.submit(work))

    def _start(self) -> bytes:
        self._gss = gss = load_gssapi()
        source = self._source
        try:
            credentials = _TICKETS.credentials(source)
            # As in Kafka, the broker's name is the one that the client connects to. A name of the kind "service at
            # host" would be looked up in DNS forward and backward, and could become another one.
            server = f"{source.service}/{self._host.lower()}@{realm_of(self._host.lower())}"
            self._context = gss.SecurityContext(
                name=gss.Name(server, gss.NameType.kerberos_principal),
                creds=credentials,
                mech=gss.MechType.kerberos,
                flags=[gss.RequirementFlag.mutual_authentication, gss.RequirementFlag.integrity],
                usage="initiate",
            )
            self._context.__DEFER_STEP_ERRORS__ = False
            first: bytes = self._context.step()
        except gss.exceptions.GSSError as error:
            _TICKETS.forget(source)
            raise self._no_ticket(error) from error
        return first

    def _no_ticket(self, error: Any) -> ConnectionFailed | LoginRefused:
        source = self._source
        text = f"there is no ticket for {source.service}/{self._host.lower()}: {reason_of(error)}"
        code = error.min_code - (1 << 32) if error.min_code >= 1 << 31 else error.min_code
        if code in _KDC_UNREACHABLE:
            return ConnectionFailed(f"{text}; is the KDC in krb5.conf, and does it run?")
        if source.keytab:
            return LoginRefused(f"{text}; check {source.principal} and {source.keytab} (`klist -k {source.keytab}`)")
        return LoginRefused(f"{text}; run kinit, and check the ticket cache with klist")

    def _check_server(self, token: bytes) -> bytes:
        gss, context = self._gss, self._context
        try:
            answer: bytes | None = context.step(token)
            is_proven = context.complete and context.actual_flags & gss.RequirementFlag.mutual_authentication
        except gss.exceptions.ExpiredContextError as error:
            raise ConnectionFailed(
                f"the ticket for {self._address} has expired during the login; try again"
            ) from error
        except gss.exceptions.GSSError as error:
            raise self._not_trusted(reason_of(error)) from error
        if not is_proven:
            raise self._not_trusted("it has not proven that it has the key of its principal")
        return answer or b""

    def _choose_layer(self, token: bytes) -> bytes:
        try:
            offer: bytes = self._context.unwrap(token).message
            if len(offer) != _LAYER_BYTES:
                raise self._not_trusted("its offer of security layers is malformed")
            if not offer[0] & _NO_LAYER:
                raise LoginRefused(f"{self._address} demands a security layer of SASL (sasl.qop); use TLS instead")
            choice: bytes = self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message
        except self._gss.exceptions.GSSError as error:
            raise self._not_trusted(reason_of(error)) from error
        return choice

    def _not_trusted(self, reason: str) -> LoginRefused:
        return LoginRefused(f"{self._address} cannot be trusted: {reason}")
