"""Delegation tokens (KIP-48) as they are kept in the store, and the errors of requests about them. Pure.

The store has no secret of a token: its password is derived from its id and the secret key of the brokers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.cluster import keys
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError

TOKENS_MAX: Final = 10_000
"""Maximum number of tokens of a cluster: each broker has all of them in memory."""
TOKENS_PER_OWNER_MAX: Final = 1_000
RENEWERS_MAX: Final = 100
TOKEN_BYTES_MAX: Final = 4096
"""Maximum size of a stored token: names of principals can be long."""
_USER: Final = "User:"


class DelegationTokensDisabled(PenstockError):
    """The broker has no secret key for delegation tokens."""

    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class DelegationTokenNotFound(PenstockError):
    """No delegation token has this HMAC."""

    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class DelegationTokenExpired(PenstockError):
    """The delegation token has expired."""

    code = ErrorCode.DELEGATION_TOKEN_EXPIRED


class DelegationTokenOwnerMismatch(PenstockError):
    """The client is neither the owner nor a renewer of the delegation token."""

    code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class InvalidPrincipalType(PenstockError):
    """The owner or a renewer is not a user."""

    code = ErrorCode.INVALID_PRINCIPAL_TYPE


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token, with which its bearer logs in as its owner. Principals have the form `User:NAME`."""

    token_id: str
    owner: str
    requester: str
    """The principal that has created the token; the owner, unless it was allowed to do so for another one."""
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """The time beyond which the token cannot be renewed."""

    @property
    def user(self) -> str:
        """Returns the name of the user that clients with this token log in as."""
        return self.owner.removeprefix(_USER)

    def has_expired(self, now_ms: int) -> bool:
        return min(self.expires_ms, self.max_ms) < now_ms

    def belongs_to(self, principal: str) -> bool:
        """Whether a principal is the owner or a renewer: it may renew, expire and describe the token."""
        return principal == self.owner or principal in self.renewers

    def dump(self) -> bytes:
        """Returns the token as a value for the store."""
        return keys.encode(
            {
                "owner": self.owner,
                "requester": self.requester,
                "renewers": list(self.renewers),
                "issued_ms": self.issued_ms,
                "expires_ms": self.expires_ms,
                "max_ms": self.max_ms,
            }
        )

    @classmethod
    def read(cls, token_id: str, value: Mapping[str, Any]) -> "DelegationToken":
        """Parses the value of a token's key."""
        return cls(
            token_id=token_id,
            owner=value["owner"],
            requester=value["requester"],
            renewers=tuple(value["renewers"]),
            issued_ms=value["issued_ms"],
            expires_ms=value["expires_ms"],
            max_ms=value["max_ms"],
        )


def check_principal(principal: str) -> None:
    """Raises InvalidPrincipalType or InvalidRequest if a principal cannot be the owner or a renewer of a token."""
    if not principal.startswith(_USER):
        raise InvalidPrincipalType(f"the principal {principal[:100]!r} is not a user; expected User:NAME")
    if principal == _USER:
        raise InvalidRequest("the name of a principal is empty; expected User:NAME")
