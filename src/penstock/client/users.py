"""Users of a cluster: lists them, sets and deletes their passwords (KIP-554). Only derived keys are sent."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.client.access_keys import AccessKeys
from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import check
from penstock.foundation.codes import ErrorCode
from penstock.foundation.scram import ITERATIONS_MAX, SALT_BYTES, ScramMechanism
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramUserName,
)

ITERATIONS: Final = ITERATIONS_MAX
"""Iterations of new passwords: as many as Kafka allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInfo:
    """A user, with the iterations of its password for each mechanism."""

    name: str
    iterations: Mapping[ScramMechanism, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaltedPassword:
    """What is derived from a password, for one mechanism."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    salted: bytes

    @classmethod
    def of(cls, password: str, mechanism: ScramMechanism, iterations: int = ITERATIONS) -> "SaltedPassword":
        """Derives it with a new random salt. Takes milliseconds."""
        salt = secrets.token_bytes(SALT_BYTES)
        salted = mechanism.salted_password(password, salt, iterations)
        return cls(mechanism=mechanism, iterations=iterations, salt=salt, salted=salted)


class Users:
    """Administration of users over the Kafka protocol."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._access_keys = AccessKeys(client)

    async def all(self) -> list[UserInfo]:
        """Returns all users, sorted by name."""
        return await self._describe(None)

    async def find(self, name: str) -> UserInfo | None:
        """Returns a user; None if it does not exist."""
        found = await self._describe([name])
        return found[0] if found else None

    async def _describe(self, names: Sequence[str] | None) -> list[UserInfo]:
        request = DescribeUserScramCredentialsRequest(
            users=None if names is None else [ScramUserName(name=name) for name in names]
        )

        async def attempt() -> list[UserInfo]:
            response: DescribeUserScramCredentialsResponse = await self._client.request(Target.ANY, request)
            check(response.error_code, "the users", response.error_message)
            for result in response.results:
                if result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                    check(result.error_code, f"user {result.user!r}", result.error_message)
            return [
                UserInfo(
                    name=result.user,
                    iterations={
                        ScramMechanism(info.mechanism): info.iterations
                        for info in result.credential_infos
                        if info.mechanism in ScramMechanism._value2member_map_
                    },
                )
                for result in response.results
                if result.error_code == ErrorCode.NONE
            ]

        return await self._client.retrying(attempt)

    async def set_password(self, name: str, passwords: Iterable[SaltedPassword]) -> None:
        """Creates a user, or changes its password, for the given mechanisms."""
        await self._alter(
            name,
            AlterUserScramCredentialsRequest(
                deletions=(),
                upsertions=[
                    ScramCredentialUpsertion(
                        name=name,
                        mechanism=one.mechanism,
                        iterations=one.iterations,
                        salt=one.salt,
                        salted_password=one.salted,
                    )
                    for one in passwords
                ],
            ),
        )

    async def delete(self, name: str) -> None:
        """Deletes a user with all its credentials and access keys. Raises ServerError if it does not exist."""
        found = await self.find(name)
        mechanisms = [ScramMechanism.SHA_512]
        if found is not None:
            mechanisms = list(found.iterations)
        elif await self._access_keys.all(name):
            await self._access_keys.delete_all(name)
            return
        deletions = [ScramCredentialDeletion(name=name, mechanism=mechanism) for mechanism in mechanisms]
        await self._alter(name, AlterUserScramCredentialsRequest(deletions=deletions, upsertions=()))

    async def _alter(self, name: str, request: AlterUserScramCredentialsRequest) -> None:
        async def attempt() -> None:
            response: AlterUserScramCredentialsResponse = await self._client.request(Target.CONTROLLER, request)
            (result,) = response.results
            check(result.error_code, f"user {name!r}", result.error_message)

        await self._client.retrying(attempt, retry_lost=False)
