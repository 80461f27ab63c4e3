"""The server's side of one login, by mechanism: PLAIN, SCRAM and OAUTHBEARER; `kerberos_logins` has GSSAPI."""

import hashlib
import hmac
import re
import secrets
from base64 import b64encode
from collections.abc import Mapping
from typing import Final, Protocol

from penstock.foundation.delegation_settings import SECRET_KEY
from penstock.foundation.kerberos_settings import GSSAPI
from penstock.foundation.oauth_settings import OAUTHBEARER
from penstock.foundation.scram import (
    ClientFinal,
    ClientFirst,
    ScramCredential,
    ScramMechanism,
    ScramMessageInvalid,
    is_proof,
    mechanism_of,
    server_first,
)
from penstock.security.accounts import Accounts
from penstock.security.delegation_logins import DelegationLogins
from penstock.security.errors import LoginFailed, TokensNotChecked

_PLAIN_PARTS: Final = 3
_NONCE_BYTES: Final = 18
_BEARER_MESSAGE: Final = re.compile(
    r"[ny],(?:a=((?:[^=,\x00\x01]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01"
)
_INVALID_TOKEN: Final = '{"status":"invalid_token"}'
OTHER_AUTHZID: Final = "Authentication failed: Client requested an authorization id that is different from username"
"""Kafka's message; Penstock does not let a user act as another one."""


class Exchange(Protocol):
    """The messages of one login by one mechanism."""

    user: str
    """The user that the client has named; empty until it has, and not proven before the exchange is done."""
    is_done: bool
    """Whether the client has proven to be the user."""
    expires_s: float | None
    """When the proof ends, in seconds since the epoch; None if it does not."""
    token_id: str
    """The delegation token with which the client logs in as the user; empty if it does not use one."""

    async def step(self, token: bytes) -> bytes | None:
        """Handles a message of the client; returns the answer. Raises LoginFailed.

        None if the mechanism has no answer: for old clients (SaslHandshake 0), that is not the same as an empty one.
        """
        ...


class AcceptsTickets(Protocol):
    """Accepts Kerberos tickets; `kerberos_logins` has the one that does, and needs a library that is optional."""

    def exchange(self) -> "Exchange": ...


class ChecksTokens(Protocol):
    """Checks tokens; `bearer_tokens` has the one that does, and needs libraries that are optional."""

    async def check(self, token: str) -> "Proven":
        """Returns what a token proves. Raises LoginFailed if it proves nothing."""
        ...


class Proven(Protocol):
    """What a token proves."""

    @property
    def user(self) -> str: ...
    @property
    def expires_s(self) -> float: ...


def new_exchange(
    mechanism: str,
    accounts: Accounts,
    passwords: Mapping[str, str],
    tokens: ChecksTokens | None = None,
    delegation: DelegationLogins | None = None,
    tickets: AcceptsTickets | None = None,
) -> Exchange:
    """Returns a new exchange. `passwords`: of users for PLAIN that the listener's settings define. `tokens`: for
    OAUTHBEARER. `delegation`: for delegation tokens with SCRAM; None if there are none. `tickets`: for GSSAPI."""
    if mechanism == GSSAPI:
        assert tickets is not None
        return tickets.exchange()
    if mechanism == OAUTHBEARER:
        assert tokens is not None
        return OAuthBearerExchange(tokens)
    scram = mechanism_of(mechanism)
    return PlainExchange(accounts, passwords) if scram is None else ScramExchange(scram, accounts, delegation)


class PlainExchange:
    """PLAIN (RFC 4616): the client sends name and password."""

    def __init__(self, accounts: Accounts, passwords: Mapping[str, str]) -> None:
        self.user = ""
        self.is_done = False
        self.expires_s: float | None = None
        self.token_id = ""
        self._accounts = accounts
        self._passwords = passwords

    async def step(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            parts = []
        if len(parts) != _PLAIN_PARTS:
            raise LoginFailed("Invalid SASL/PLAIN response: expected 3 tokens", "the message is malformed")
        authzid, self.user, password = parts
        for name, value in (("username", self.user), ("password", password)):
            if not value:
                raise LoginFailed(f"Authentication failed: {name} not specified", f"there is no {name}")
        if authzid not in ("", self.user):
            raise LoginFailed(OTHER_AUTHZID, "the client wants to act as another user")
        # The password of the settings is compared first, and PBKDF2 computed in either case: it takes the same time.
        in_settings = _is_same(self._passwords.get(self.user), password)
        in_store = await self._accounts.is_password(self.user, password)
        if not (in_settings or in_store):
            raise LoginFailed("Authentication failed: Invalid username or password", "wrong user or password")
        self.is_done = True
        return b""


class ScramExchange:
    """SCRAM (RFC 5802): the client proves that it knows the password, and the server that it knows the user.

    With the extension `tokenauth=true` (KIP-48), the user is the id of a delegation token, and the password its HMAC.
    """

    def __init__(
        self, mechanism: ScramMechanism, accounts: Accounts, delegation: DelegationLogins | None = None
    ) -> None:
        self.user = ""
        self.is_done = False
        self.expires_s: float | None = None
        self.token_id = ""
        self._mechanism = mechanism
        self._accounts = accounts
        self._delegation = delegation
        self._first: ClientFirst | None = None
        self._answer = ""
        self._nonce = ""
        self._credential: ScramCredential | None = None
        self._exists = False

    async def step(self, token: bytes) -> bytes:
        try:
            return await (self._start(token) if self._first is None else self._finish(self._first, token))
        except ScramMessageInvalid as error:
            raise LoginFailed(f"Authentication failed: {error}", str(error)) from error

    async def _start(self, token: bytes) -> bytes:
        first = ClientFirst.parse(token)
        self.user = first.user
        if first.authzid not in ("", first.user):
            raise LoginFailed(OTHER_AUTHZID, "the client wants to act as another user")
        if first.extensions.get("tokenauth", "").lower() == "true":
            self.token_id = first.user
            found = await self._token_credential(first.user)
        else:
            found = self._accounts.credential(first.user, self._mechanism)
        self._exists = found is not None
        self._credential = credential = found or self._accounts.made_up(first.user, self._mechanism)
        self._first, self._nonce = first, first.nonce + b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        self._answer = server_first(self._nonce, credential.salt, credential.iterations)
        return self._answer.encode()

    async def _finish(self, first: ClientFirst, token: bytes) -> bytes:
        final = ClientFinal.parse(token)
        credential = self._credential
        assert credential is not None
        if final.binding != first.header:
            raise LoginFailed(self._refusal, "the channel binding differs between messages")
        # librdkafka before 2.6.1 repeats its own nonce in front of the whole one.
        if final.nonce not in (self._nonce, first.nonce + self._nonce):
            raise LoginFailed(self._refusal, "the nonce differs between messages: a replayed message?")
        auth_message = f"{first.bare},{self._answer},{final.unproved}".encode()
        is_right = is_proof(self._mechanism, credential, auth_message, final.proof)
        if not (is_right and self._exists):
            raise LoginFailed(self._refusal, "wrong user or password")
        if self.token_id:
            await self._become_owner(self.token_id, credential)
        self.is_done = True
        return b"v=" + b64encode(self._mechanism.hmac(credential.server_key, auth_message))

    async def _token_credential(self, token_id: str) -> ScramCredential | None:
        if self._delegation is None:
            raise LoginFailed(self._refusal, f"delegation tokens are disabled: {SECRET_KEY} is not set")
        return await self._delegation.credential(token_id, self._mechanism)

    async def _become_owner(self, token_id: str, credential: ScramCredential) -> None:
        """The client has proven that it knows the password of a token: it logs in as the owner of the token."""
        assert self._delegation is not None
        found = await self._delegation.find(token_id, self._mechanism, credential)
        if found is None:
            raise LoginFailed(self._refusal, "the delegation token has expired")
        self.user, self.expires_s = found.user, found.expires_ms / 1000

    @property
    def _refusal(self) -> str:
        """Returns Kafka's message, which says nothing about why the login failed."""
        return (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism.sasl_name}"
        )


class OAuthBearerExchange:
    """OAUTHBEARER (RFC 7628): the client sends a token that an issuer has signed."""

    def __init__(self, tokens: ChecksTokens) -> None:
        self.user = ""
        self.is_done = False
        self.expires_s: float | None = None
        self.token_id = ""
        self._tokens = tokens

    async def step(self, token: bytes) -> bytes:
        authzid, bearer = _bearer_of(token)
        try:
            proven = await self._tokens.check(bearer)
        except TokensNotChecked:
            raise
        except LoginFailed as error:
            raise LoginFailed(_INVALID_TOKEN, error.reason, challenge=_INVALID_TOKEN.encode()) from error
        self.user, self.expires_s = proven.user, proven.expires_s
        if authzid not in ("", self.user):
            raise LoginFailed(OTHER_AUTHZID, "the client wants to act as another user")
        self.is_done = True
        return b""


def _bearer_of(message: bytes) -> tuple[str, str]:
    """Returns the user whom a client wants to act as, and its token. Raises LoginFailed."""
    found = _BEARER_MESSAGE.fullmatch(message.decode("latin-1"))
    if found is None:
        raise LoginFailed("Invalid OAUTHBEARER client first message", "the message is malformed")
    authzid, pairs = found.groups()
    token = ""
    for pair in pairs.split("\1"):
        name, _, value = pair.partition("=")
        if name.lower() == "auth":
            scheme, _, token = value.partition(" ")
            if scheme.lower() != "bearer":
                raise LoginFailed("Invalid scheme in OAUTHBEARER client first message", "the scheme is not Bearer")
    if not token.strip():
        raise LoginFailed("Invalid OAUTHBEARER client first message: 'auth' not specified", "there is no token")
    return (authzid or "").replace("=2C", ",").replace("=3D", "="), token.strip()


def _is_same(known: str | None, given: str) -> bool:
    """Compares passwords in a time that depends on neither of them."""
    hashes = [hashlib.sha256(text.encode()).digest() for text in (known or "", given)]
    return hmac.compare_digest(*hashes) and known is not None
