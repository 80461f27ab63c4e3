"""Delegation tokens (KIP-48): creates, lists, renews and expires them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import check
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_delegation_token import (
    CreatableRenewer,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribedTokenOwner,
)
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_TOO_MANY: Final = "there are too many delegation tokens; expire those that are not used"
AT_ONCE_MS: Final = -1
"""As the time until a token expires: it is removed."""
DEFAULT_MS: Final = -1
"""As a lifetime or period: as long as the brokers' settings allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenInfo:
    """A delegation token. Principals have the form `User:NAME`."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)
    """The password of the token is its base64 form."""


class DelegationTokens:
    """Administration of delegation tokens over the Kafka protocol."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def create(
        self, *, owner: str | None = None, renewers: Sequence[str] = (), lifetime_ms: int = DEFAULT_MS
    ) -> DelegationTokenInfo:
        """Creates a token, of the client unless there is an `owner`. Raises ServerError. Not repeated if the
        connection is lost: the broker may have created the token."""
        kind, name = (None, None) if owner is None else _split(owner)
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[
                CreatableRenewer(principal_type=kind, principal_name=name) for kind, name in map(_split, renewers)
            ],
            max_lifetime_ms=lifetime_ms,
        )

        async def attempt() -> DelegationTokenInfo:
            response: CreateDelegationTokenResponse = await self._client.request(Target.ANY, request)
            is_full = response.error_code == ErrorCode.POLICY_VIOLATION
            check(response.error_code, "the delegation token", _TOO_MANY if is_full else None)
            return DelegationTokenInfo(
                token_id=response.token_id,
                owner=f"{response.principal_type}:{response.principal_name}",
                requester=f"{response.token_requester_principal_type}:{response.token_requester_principal_name}",
                renewers=tuple(renewers),
                issued_ms=response.issue_timestamp_ms,
                expires_ms=response.expiry_timestamp_ms,
                max_ms=response.max_timestamp_ms,
                hmac=bytes(response.hmac),
            )

        return await self._client.retrying(attempt, retry_lost=False)

    async def all(self, owners: Iterable[str] | None = None) -> list[DelegationTokenInfo]:
        """Returns the tokens that the client may describe, the oldest first; with `owners`, only those that one of
        these principals owns or may renew."""
        request = DescribeDelegationTokenRequest(
            owners=None
            if owners is None
            else [DescribedTokenOwner(principal_type=kind, principal_name=name) for kind, name in map(_split, owners)]
        )

        async def attempt() -> list[DelegationTokenInfo]:
            response: DescribeDelegationTokenResponse = await self._client.request(Target.ANY, request)
            check(response.error_code, "the delegation tokens")
            found = [
                DelegationTokenInfo(
                    token_id=token.token_id,
                    owner=f"{token.principal_type}:{token.principal_name}",
                    requester=f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
                    renewers=tuple(f"{each.principal_type}:{each.principal_name}" for each in token.renewers),
                    issued_ms=token.issue_timestamp,
                    expires_ms=token.expiry_timestamp,
                    max_ms=token.max_timestamp,
                    hmac=bytes(token.hmac),
                )
                for token in response.tokens
            ]
            return sorted(found, key=lambda token: (token.issued_ms, token.token_id))

        return await self._client.retrying(attempt)

    async def renew(self, hmac: bytes, period_ms: int = DEFAULT_MS) -> int:
        """Extends a token; returns its new expiry time. Raises ServerError."""
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)

        async def attempt() -> int:
            response: RenewDelegationTokenResponse = await self._client.request(Target.ANY, request)
            check(response.error_code, "the delegation token")
            return response.expiry_timestamp_ms

        return await self._client.retrying(attempt)

    async def expire(self, hmac: bytes, period_ms: int = AT_ONCE_MS) -> int:
        """Lets a token expire after a time, or removes it; returns its new expiry time. Raises ServerError."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)

        async def attempt() -> int:
            response: ExpireDelegationTokenResponse = await self._client.request(Target.ANY, request)
            check(response.error_code, "the delegation token")
            return response.expiry_timestamp_ms

        return await self._client.retrying(attempt, retry_lost=False)


def _split(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name
