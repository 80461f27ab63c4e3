"""The SASL state of connections: the chosen mechanism, the login in progress, who the client is, and until when."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.sasl_settings import SaslSettings
from penstock.security.accounts import Accounts
from penstock.security.audit import AuditLog
from penstock.security.delegation_logins import DelegationLogins
from penstock.security.errors import LoginFailed
from penstock.security.exchanges import AcceptsTickets, ChecksTokens, Exchange, new_exchange

logger = logging.getLogger(__name__)

LOG_EVERY_S: Final = 60.0
HOSTS_MAX: Final = 1024
FREE_FAILURES: Final = 10
"""Number of failed logins of a host within a minute above which each one is answered later than the one before."""
DELAY_MAX_S: Final = 5.0
NAME_CHARS_SHOWN: Final = 64
LIFETIME_MIN_MS: Final = 1000
"""Lifetime of a session whose token is about to end, or has ended by less than clocks may differ."""
LIFETIME_MAX_MS: Final = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAnswer:
    """The answer to a message of a login."""

    code: ErrorCode
    message: str | None = None
    token: bytes | None = b""
    """None if the mechanism has no message here."""
    lifetime_ms: int = 0
    """Time after which the client must authenticate again; 0 for never."""


class FailedLogins:
    """Counts failed logins of each host, delays the answers, and logs them."""

    def __init__(self, refused: Callable[[str], None]) -> None:
        """`refused` is called with a reason for each failed login, for metrics."""
        self._refused = refused
        self._hosts: dict[str, tuple[float, int]] = {}
        """By host: the time of the first failure that counts, and the number of failures since."""

    def note(self, host: str, delay_s: float, now_s: float, describe: Callable[[], str]) -> float:
        """Notes a failed login; returns the seconds to wait with the answer. Logs the first one in a minute."""
        self._refused("login_failed")
        since_s, count = self._hosts.pop(host, (now_s, 0))
        if now_s >= since_s + LOG_EVERY_S:
            since_s, count = now_s, 0
        if len(self._hosts) >= HOSTS_MAX:
            del self._hosts[next(iter(self._hosts))]
        self._hosts[host] = since_s, count + 1
        if not count:
            logger.warning("login_failed host=%s %s", host, describe())
        return min(DELAY_MAX_S, delay_s * 2.0 ** min(30, max(0, count - FREE_FAILURES)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginServer:
    """What the logins of one listener have in common."""

    listener: str
    settings: SaslSettings
    accounts: Accounts
    failed: FailedLogins
    audit: AuditLog | None = None
    tokens: ChecksTokens | None = None
    """None if the listener does not have OAUTHBEARER."""
    delegation: DelegationLogins | None = None
    """None if delegation tokens are disabled."""
    tickets: AcceptsTickets | None = None
    """None if the listener does not have GSSAPI."""

    def note(self, host: str, mechanism: str, exchange: Exchange, reason: str = "") -> None:
        """Writes a login to the audit log; one with a `reason` has failed."""
        if self.audit is not None:
            self.audit.login(
                ok=not reason,
                user=exchange.user,
                host=host,
                listener=self.listener,
                mechanism=mechanism,
                token_id=exchange.token_id,
                reason=reason,
            )

    def session(self, host: str) -> "LoginSession":
        return LoginSession(self, host)


class LoginSession:
    """The SASL state of one connection."""

    __slots__ = (
        "_exchange", "_failure", "_host", "_mechanism", "_server", "expires_s", "has_token", "on_login", "principal"
    )  # fmt: skip

    def __init__(self, server: LoginServer, host: str) -> None:
        self._server = server
        self._host = host
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._failure: LoginFailed | None = None
        """Why the login has failed, if the client must answer a challenge before it is told."""
        self.principal = ""
        """The principal; empty until the client has authenticated."""
        self.has_token = False
        """Whether the client has authenticated with a delegation token."""
        self.expires_s: float | None = None
        """The time, of the event loop's clock, at which the client must have authenticated again."""
        self.on_login: Callable[[], None] = _ignore
        """Called after each login that succeeds."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self._server.settings.enabled

    def begin(self, mechanism: str) -> ErrorCode:
        """Begins a login, the first one of a connection or a later one (KIP-368)."""
        if self._exchange is not None or (self.principal and self.expires_s is None):
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self.mechanisms or (self.principal and mechanism != self._mechanism):
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        server = self._server
        self._mechanism = mechanism
        self._exchange = new_exchange(
            mechanism,
            server.accounts,
            server.settings.users,
            server.tokens,
            server.delegation,
            server.tickets,
        )
        return ErrorCode.NONE

    async def step(self, token: bytes) -> LoginAnswer:
        """Handles a message of the login. The answer to one that fails is delayed; the connection must be closed."""
        exchange = self._exchange
        if exchange is None:
            return LoginAnswer(
                code=ErrorCode.ILLEGAL_SASL_STATE, message="SaslAuthenticate without a SaslHandshake before it"
            )
        if self._failure is not None:
            return LoginAnswer(code=self._failure.code, message=self._failure.message)
        try:
            answer = await exchange.step(token)
            if exchange.is_done:
                self._check_principal(exchange)
        except LoginFailed as error:
            await asyncio.sleep(self._failed(exchange, error))
            if error.challenge:
                self._failure = error
                return LoginAnswer(code=ErrorCode.NONE, token=error.challenge)
            return LoginAnswer(code=error.code, message=error.message)
        if not exchange.is_done:
            return LoginAnswer(code=ErrorCode.NONE, token=answer)
        return LoginAnswer(code=ErrorCode.NONE, token=answer, lifetime_ms=self._succeeded(exchange))

    def _check_principal(self, exchange: Exchange) -> None:
        if self.principal not in ("", f"User:{exchange.user}"):
            raise LoginFailed(
                f"Cannot change principals during re-authentication from {self.principal} to User:{exchange.user}",
                f"{self.principal} became another user",
            )

    def _succeeded(self, exchange: Exchange) -> int:
        self._exchange = None
        self.principal = f"User:{exchange.user}"
        self.has_token = bool(exchange.token_id)
        lifetime_ms = self._server.settings.reauth_ms[self._mechanism]
        if exchange.expires_s is not None:
            left_ms = int(min(LIFETIME_MAX_MS, max(LIFETIME_MIN_MS, (exchange.expires_s - time.time()) * 1000)))
            lifetime_ms = min(lifetime_ms or left_ms, left_ms)
        self.expires_s = asyncio.get_running_loop().time() + lifetime_ms / 1000 if lifetime_ms else None
        self.on_login()
        self._server.note(self._host, self._mechanism, exchange)
        return lifetime_ms

    def _failed(self, exchange: Exchange, error: LoginFailed) -> float:
        server = self._server

        def describe() -> str:
            user = exchange.user[:NAME_CHARS_SHOWN]
            return f"listener={server.listener} mechanism={self._mechanism} user={user!r} reason={error.reason!r}"

        server.note(self._host, self._mechanism, exchange, error.reason)
        now_s = asyncio.get_running_loop().time()
        return server.failed.note(self._host, server.settings.failed_delay_s, now_s, describe)


def _ignore() -> None:
    """Default of `LoginSession.on_login`."""
