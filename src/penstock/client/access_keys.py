"""Access keys of users for SQS and the schema registry: creates, lists, disables and deletes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import check
from penstock.wire.messages import alter_access_keys as actions
from penstock.wire.messages.alter_access_keys import AlterAccessKeysRequest, AlterAccessKeysResponse
from penstock.wire.messages.create_access_key import CreateAccessKeyRequest, CreateAccessKeyResponse
from penstock.wire.messages.describe_access_keys import DescribeAccessKeysRequest, DescribeAccessKeysResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKeyInfo:
    """An access key of a user, without its secret."""

    access_key: str
    user: str
    owner: str
    actions: tuple[str, ...]
    queues: tuple[str, ...]
    subjects: tuple[str, ...]
    created_ms: int
    is_enabled: bool
    is_usable: bool
    """Whether the broker that was asked can decrypt the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAccessKey:
    """An access key that was created just now."""

    access_key: str
    secret: str = field(repr=False)
    owner: str
    created_ms: int


class AccessKeys:
    """Administration of access keys over the Kafka protocol."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def create(
        self,
        user: str,
        *,
        owner: str = "",
        actions: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        subjects: Sequence[str] | None = None,
    ) -> NewAccessKey:
        """Creates an access key. `owner`: its account; "" for the default account. `actions`, `queues`, `subjects`:
        patterns; None for all. Raises ServerError. Not repeated if the connection is lost: the broker may have
        created the key."""
        request = CreateAccessKeyRequest(user=user, owner=owner, actions=actions, queues=queues, subjects=subjects)

        async def attempt() -> NewAccessKey:
            response: CreateAccessKeyResponse = await self._client.request(Target.ANY, request)
            check(response.error_code, f"the access key of user {user!r}", response.error_message)
            return NewAccessKey(
                access_key=response.access_key,
                secret=response.secret,
                owner=response.owner,
                created_ms=response.created_ms,
            )

        return await self._client.retrying(attempt, retry_lost=False)

    async def all(self, user: str | None = None) -> list[AccessKeyInfo]:
        """Returns the access keys of a user, or of all users, by user and age."""

        async def attempt() -> list[AccessKeyInfo]:
            request = DescribeAccessKeysRequest(user=user)
            response: DescribeAccessKeysResponse = await self._client.request(Target.ANY, request)
            check(response.error_code, "the access keys", response.error_message)
            found = [
                AccessKeyInfo(
                    access_key=each.access_key,
                    user=each.user,
                    owner=each.owner,
                    actions=tuple(each.actions),
                    queues=tuple(each.queues),
                    subjects=tuple(each.subjects),
                    created_ms=each.created_ms,
                    is_enabled=each.is_enabled,
                    is_usable=each.is_usable,
                )
                for each in response.keys
            ]
            return sorted(found, key=lambda each: (each.user, each.created_ms, each.access_key))

        return await self._client.retrying(attempt)

    async def delete(self, access_key: str) -> None:
        """Raises ServerError if there is no such key."""
        await self._alter(AlterAccessKeysRequest(action=actions.DELETE, access_key=access_key), access_key)

    async def delete_all(self, user: str) -> None:
        """Deletes all access keys of a user. Raises ServerError if it has none."""
        await self._alter(AlterAccessKeysRequest(action=actions.DELETE_ALL, user=user), user)

    async def set_enabled(self, access_key: str, is_enabled: bool) -> None:
        """Enables or disables an access key. Raises ServerError if there is no such key."""
        action = actions.ENABLE if is_enabled else actions.DISABLE
        await self._alter(AlterAccessKeysRequest(action=action, access_key=access_key), access_key)

    async def reencrypt(self) -> None:
        """Encrypts all access keys with the first secret key of the broker. Raises ServerError if it cannot."""
        await self._alter(AlterAccessKeysRequest(action=actions.REENCRYPT), "the access keys")

    async def _alter(self, request: AlterAccessKeysRequest, name: str) -> None:
        async def attempt() -> None:
            response: AlterAccessKeysResponse = await self._client.request(Target.ANY, request)
            check(response.error_code, f"{name!r}", response.error_message)

        await self._client.retrying(attempt, retry_lost=False)
