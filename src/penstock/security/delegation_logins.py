"""Logins with delegation tokens (KIP-48): by SCRAM, with a token's id as the user and its HMAC as the password.

Credentials are derived from a token's id and the secret key of the brokers, whether there is such a token or not. So
a client that has proven to know the password has a token that a broker has issued, and only then the token is looked
up: in the image, or in the store if this broker cannot know the token yet.
"""

import asyncio
import re
from base64 import b64encode
from concurrent.futures import Executor
from typing import Final, Protocol

from penstock.coordination.store import StoreUnavailable
from penstock.foundation.codes import ErrorCode
from penstock.foundation.scram import ITERATIONS_MIN, SALT_BYTES, ScramCredential, ScramMechanism
from penstock.security.errors import LoginFailed

CREDENTIALS_MAX: Final = 10_000
"""Number of credentials that are remembered, so that PBKDF2 is not computed for each login."""
_TOKEN_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_SALT: Final = b"salt/"


class Token(Protocol):
    """A delegation token that has not expired."""

    @property
    def user(self) -> str: ...
    @property
    def expires_ms(self) -> int: ...


class Tokens(Protocol):
    """The delegation tokens of the cluster: `penstock.cluster.token_registry`."""

    @property
    def is_enabled(self) -> bool: ...

    def hmac(self, token_id: str) -> bytes: ...

    async def current(self, token_id: str) -> Token | None:
        """Returns a token that has not expired; None if there is none. Raises StoreUnavailable."""


class TokenNotLookedUp(LoginFailed):
    """The store did not answer, so that the token cannot be looked up at the moment. Clients try again."""

    code = ErrorCode.REQUEST_TIMED_OUT

    def __init__(self) -> None:
        super().__init__("The broker cannot look up the delegation token; try again", "the store did not answer")


class DelegationLogins:
    """Derives the credentials of delegation tokens, and looks up who logs in with one."""

    def __init__(self, tokens: Tokens, threads: Executor) -> None:
        """`threads`: where PBKDF2 is computed."""
        self._tokens = tokens
        self._threads = threads
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        """Credentials that clients have proven to know, the oldest first. They never change."""

    async def credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Returns the credential that a token with this id has, if there is one; None if there cannot be one."""
        if not self._tokens.is_enabled or not _TOKEN_ID.fullmatch(token_id):
            return None
        found = self._credentials.get((token_id, mechanism))
        if found is None:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._threads, self._derive, token_id, mechanism)
        return found

    def _derive(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        password = self._tokens.hmac(token_id)
        salt = mechanism.hmac(password, _SALT + token_id.encode())[:SALT_BYTES]
        salted = mechanism.salted_password(b64encode(password).decode(), salt, ITERATIONS_MIN)
        return ScramCredential.from_salted_password(mechanism, salted, salt, ITERATIONS_MIN)

    async def find(self, token_id: str, mechanism: ScramMechanism, credential: ScramCredential) -> Token | None:
        """Returns the token of a client that knows its password; None if it has expired. Raises LoginFailed."""
        try:
            found = await self._tokens.current(token_id)
        except StoreUnavailable as error:
            raise TokenNotLookedUp from error
        place = token_id, mechanism
        if found is not None and place not in self._credentials:
            if len(self._credentials) >= CREDENTIALS_MAX:
                del self._credentials[next(iter(self._credentials))]
            self._credentials[place] = credential
        return found
