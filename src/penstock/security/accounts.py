"""The users that clients can log in as: their SCRAM credentials, checks of passwords, and made-up credentials.

A user that does not exist gets credentials that are made up from a secret: always the same ones, so that a client can
tell by neither answers nor times whether a user exists.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from itertools import islice
from typing import Final, Protocol

from penstock.foundation.scram import ITERATIONS_MIN, SALT_BYTES, ScramCredential, ScramMechanism

SAMPLED_USERS: Final = 1000
"""Number of users whose credentials decide what made-up credentials look like."""
VERIFIED_MAX: Final = 10_000
"""Number of verified passwords that are remembered, so that PBKDF2 is computed once for each."""


class HasScram(Protocol):
    """A user with SCRAM credentials."""

    @property
    def scram(self) -> Mapping[ScramMechanism, ScramCredential]: ...


class Accounts:
    """Looks up users and checks their passwords."""

    def __init__(
        self, users: Callable[[], Mapping[str, HasScram]], secret: Callable[[], str], threads: Executor
    ) -> None:
        """`secret`: the same on all brokers. `threads`: where PBKDF2 is computed."""
        self._users = users
        self._secret = secret
        self._threads = threads
        self._key: Final = secrets.token_bytes(32)
        self._verified: dict[tuple[str, bytes], bytes] = {}
        """Keyed hashes of verified passwords, by user and StoredKey, the oldest first."""
        self._shapes: dict[ScramMechanism, tuple[int, int]] = {}
        self._shapes_from: object = None

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Returns the credential of a user; None if the user does not exist, or has none for the mechanism."""
        found = self._users().get(user)
        return None if found is None else found.scram.get(mechanism)

    def made_up(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Returns a credential for a user that does not exist. It has no password, and is always the same."""
        iterations, salt_bytes = self._shape(mechanism)
        seed = self._secret().encode()
        text = f"{mechanism.sasl_name}/{user}".encode()
        salt = hashlib.shake_256(hmac.digest(seed, text, "sha512")).digest(salt_bytes)
        key = secrets.token_bytes(mechanism.hash_bytes)
        return ScramCredential(salt=salt, stored_key=key, server_key=key, iterations=iterations)

    def _shape(self, mechanism: ScramMechanism) -> tuple[int, int]:
        """Returns the iterations and the salt's length of most users, which made-up credentials have as well."""
        users = self._users()
        if self._shapes_from is not users:
            self._shapes.clear()
            self._shapes_from = users
        found = self._shapes.get(mechanism)
        if found is None:
            sample = (user.scram.get(mechanism) for user in islice(users.values(), SAMPLED_USERS))
            counts = Counter((one.iterations, len(one.salt)) for one in sample if one is not None)
            found = counts.most_common(1)[0][0] if counts else (ITERATIONS_MIN, SALT_BYTES)
            self._shapes[mechanism] = found
        return found

    async def is_password(self, user: str, password: str) -> bool:
        """Returns whether a user has a password. Takes as long for a user that does not exist."""
        known = self._users().get(user)
        mechanism = max(known.scram, default=ScramMechanism.SHA_512) if known is not None else ScramMechanism.SHA_512
        credential = None if known is None else known.scram.get(mechanism)
        if credential is None:
            made_up = self.made_up(user, mechanism)
            await self._run(lambda: made_up.is_of(mechanism, password))
            return False
        place = user, credential.stored_key
        digest = hmac.digest(self._key, password.encode(), "sha256")
        if hmac.compare_digest(self._verified.get(place, b""), digest):
            return True
        if not await self._run(lambda: credential.is_of(mechanism, password)):
            return False
        if len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[place] = digest
        return True

    async def _run(self, work: Callable[[], bool]) -> bool:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
