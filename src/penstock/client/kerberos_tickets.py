"""The Kerberos credentials of clients of this process: acquired once, and renewed in the background."""

import logging
import math
import os
import threading
import time
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from penstock.client.krb5 import destroy_tickets
from penstock.foundation.daemon_threads import DaemonThreads
from penstock.foundation.gss import load_gssapi, reason_of
from penstock.foundation.kerberos_settings import TicketSource

logger = logging.getLogger(__name__)

SHARE_USED: Final = 0.5
"""The part of their lifetime after which tickets of a keytab are renewed."""
RETRY_S: Final = 30.0
SOURCES_MAX: Final = 64


@dataclass(slots=True, kw_only=True)
class _Acquired:
    credentials: Any
    renew_s: float
    """When to renew them, in seconds since the epoch."""
    expires_s: float


class TicketCache:
    """Credentials by source. GSS-API would renew them as well, but each login would wait for a KDC that is silent."""

    def __init__(self, threads: DaemonThreads) -> None:
        self._threads = threads
        self._known: dict[TicketSource, _Acquired] = {}
        self._lock = threading.Lock()
        self._replaced_s: dict[TicketSource, float] = {}
        """When the tickets of a source were replaced, by the steady clock."""

    def credentials(self, source: TicketSource) -> Any:
        """Returns the credentials of a source. Waits for the KDC if there are none. Raises GSSError."""
        if not source.keytab:  # kinit renews them
            return _acquire(source)
        known = self._known.get(source)
        if known is None or time.time() >= known.expires_s:
            with self._lock:  # many connections at once ask the KDC for one ticket
                known = self._known.get(source)
                if known is None or time.time() >= known.expires_s:
                    known = self._renew(source)
        elif time.time() >= known.renew_s:
            known.renew_s = time.time() + RETRY_S
            self._threads.submit(lambda: self._try_to_renew(source))
        return known.credentials

    def forget(self, source: TicketSource) -> None:
        """Forgets the credentials of a source, because they could not be used."""
        self._known.pop(source, None)

    def replace(self, source: TicketSource) -> None:
        """Forgets the tickets of a source as well, so that the next login gets new ones. Not more often than twice a
        minute: clients that are refused try again and again."""
        now_s = time.monotonic()
        if source.keytab and now_s >= self._replaced_s.get(source, -math.inf) + RETRY_S:
            if len(self._replaced_s) >= SOURCES_MAX:
                self._replaced_s.pop(next(iter(self._replaced_s)), None)
            self._replaced_s[source] = now_s
            self.forget(source)
            destroy_tickets(_cache_of(source))

    def _renew(self, source: TicketSource) -> _Acquired:
        credentials = _acquire(source)
        now_s, lifetime_s = time.time(), float(credentials.lifetime or 0)
        found = _Acquired(
            credentials=credentials,
            renew_s=now_s + max(RETRY_S, lifetime_s * SHARE_USED),
            expires_s=now_s + lifetime_s,
        )
        if len(self._known) >= SOURCES_MAX:
            self._known.pop(next(iter(self._known)), None)
        self._known[source] = found
        return found

    def _try_to_renew(self, source: TicketSource) -> None:
        try:
            self._renew(source)
        except load_gssapi().exceptions.GSSError as error:
            logger.info("tickets_not_renewed principal=%r reason=%r", source.principal, reason_of(error))


def _acquire(source: TicketSource) -> Any:
    """Acquires the credentials of a source. The tickets of a keytab are in memory, those of kinit where it says."""
    gss = load_gssapi()
    store = {"ccache": source.cache} if source.cache else {}
    if source.keytab:
        store = {"client_keytab": source.keytab, "ccache": _cache_of(source)}
    name = gss.Name(source.principal, gss.NameType.kerberos_principal) if source.principal else None
    return gss.Credentials(name=name, usage="initiate", mechs=[gss.MechType.kerberos], store=store or None)


def _cache_of(source: TicketSource) -> str:
    """Returns the name of the cache in memory that has the tickets of a keytab."""
    digest = sha256(f"{source.principal}\0{source.keytab}".encode()).hexdigest()[:16]
    return f"MEMORY:penstock-{os.getpid()}-{digest}"
