"""The server's side of one login, by mechanism: PLAIN and SCRAM."""

import hashlib
import hmac
import secrets
from base64 import b64encode
from collections.abc import Mapping
from typing import Final, Protocol

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
from penstock.security.errors import LoginFailed

_PLAIN_PARTS: Final = 3
_NONCE_BYTES: Final = 18
OTHER_AUTHZID: Final = "Authentication failed: Client requested an authorization id that is different from username"
"""Kafka's message; Penstock does not let a user act as another one."""


class Exchange(Protocol):
    """The messages of one login by one mechanism."""

    user: str
    """The user that the client has named; empty until it has, and not proven before the exchange is done."""
    is_done: bool
    """Whether the client has proven to be the user."""

    async def step(self, token: bytes) -> bytes:
        """Handles a message of the client; returns the answer. Raises LoginFailed."""
        ...


def new_exchange(mechanism: str, accounts: Accounts, passwords: Mapping[str, str]) -> Exchange:
    """Returns a new exchange. `passwords`: of users for PLAIN that the listener's settings define."""
    scram = mechanism_of(mechanism)
    return PlainExchange(accounts, passwords) if scram is None else ScramExchange(scram, accounts)


class PlainExchange:
    """PLAIN (RFC 4616): the client sends name and password."""

    def __init__(self, accounts: Accounts, passwords: Mapping[str, str]) -> None:
        self.user = ""
        self.is_done = False
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
    """SCRAM (RFC 5802): the client proves that it knows the password, and the server that it knows the user."""

    def __init__(self, mechanism: ScramMechanism, accounts: Accounts) -> None:
        self.user = ""
        self.is_done = False
        self._mechanism = mechanism
        self._accounts = accounts
        self._first: ClientFirst | None = None
        self._answer = ""
        self._nonce = ""
        self._credential: ScramCredential | None = None
        self._exists = False

    async def step(self, token: bytes) -> bytes:
        try:
            return self._start(token) if self._first is None else self._finish(self._first, token)
        except ScramMessageInvalid as error:
            raise LoginFailed(f"Authentication failed: {error}", str(error)) from error

    def _start(self, token: bytes) -> bytes:
        first = ClientFirst.parse(token)
        self.user = first.user
        if first.authzid not in ("", first.user):
            raise LoginFailed(OTHER_AUTHZID, "the client wants to act as another user")
        if first.extensions.get("tokenauth", "").lower() == "true":
            raise LoginFailed(self._refusal, "delegation tokens are not supported")
        found = self._accounts.credential(first.user, self._mechanism)
        self._exists = found is not None
        self._credential = credential = found or self._accounts.made_up(first.user, self._mechanism)
        self._first, self._nonce = first, first.nonce + b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        self._answer = server_first(self._nonce, credential.salt, credential.iterations)
        return self._answer.encode()

    def _finish(self, first: ClientFirst, token: bytes) -> bytes:
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
        self.is_done = True
        return b"v=" + b64encode(self._mechanism.hmac(credential.server_key, auth_message))

    @property
    def _refusal(self) -> str:
        """Returns Kafka's message, which says nothing about why the login failed."""
        return (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism.sasl_name}"
        )


def _is_same(known: str | None, given: str) -> bool:
    """Compares passwords in a time that depends on neither of them."""
    hashes = [hashlib.sha256(text.encode()).digest() for text in (known or "", given)]
    return hmac.compare_digest(*hashes) and known is not None
