"""Store writes that create, renew, expire and remove delegation tokens. Pure."""

from dataclasses import replace
from itertools import islice
from typing import Final

from penstock.cluster import keys
from penstock.cluster.delegation_tokens import (
    TOKEN_BYTES_MAX,
    TOKENS_MAX,
    TOKENS_PER_OWNER_MAX,
    DelegationToken,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
)
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import ABSENT, Delete, Op, Put
from penstock.foundation.errors import InvalidRequest, PolicyViolation

REMOVED_AT_ONCE: Final = 50
"""Maximum number of tokens that are removed in one transaction of the store."""


def plan_token(image: ClusterImage, token: DelegationToken) -> list[Op]:
    """Returns the writes that create a token. Expired tokens make room for it. Raises PolicyViolation if
    there are too many."""
    value = token.dump()
    if len(value) > TOKEN_BYTES_MAX:
        raise InvalidRequest(f"the token has {len(value)} bytes, at most {TOKEN_BYTES_MAX}; name fewer renewers")
    ops: list[Op] = []
    if sum(each.owner == token.owner for each in image.delegation_tokens.values()) >= TOKENS_PER_OWNER_MAX:
        ops = plan_removal(image, token.issued_ms, token.owner)
        if not ops:
            raise PolicyViolation(f"{token.owner} has {TOKENS_PER_OWNER_MAX} delegation tokens, which is the limit")
    elif len(image.delegation_tokens) >= TOKENS_MAX:
        ops = plan_removal(image, token.issued_ms)
        if not ops:
            raise PolicyViolation(f"there are {TOKENS_MAX} delegation tokens, which is the limit")
    return [*ops, Put(keys.delegation_token(token.token_id), value, ABSENT)]


def plan_renewal(image: ClusterImage, token_id: str, by: str, period_ms: int, now_ms: int) -> list[Op]:
    """Returns the write that extends a token, at most to its `max_ms`. `by`: the principal that asks for it."""
    token = _find(image, token_id)
    if token.has_expired(now_ms):
        raise DelegationTokenExpired("the delegation token has expired, and cannot be renewed; create another one")
    _check_owner(token, by)
    return [_set_expiry(image, token, now_ms + period_ms)]


def plan_expiry(image: ClusterImage, token_id: str, by: str, period_ms: int, now_ms: int) -> list[Op]:
    """Returns the write that lets a token expire after a time, or removes it if the time is negative."""
    token = _find(image, token_id)
    _check_owner(token, by)
    if period_ms < 0:
        return [_remove(image, token_id)]
    if token.has_expired(now_ms):
        raise DelegationTokenExpired("the delegation token has expired already")
    return [_set_expiry(image, token, now_ms + period_ms)]


def plan_removal(image: ClusterImage, now_ms: int, owner: str | None = None) -> list[Op]:
    """Returns the writes that remove expired tokens, of one owner or of all; not more than one transaction has."""
    expired = (
        token_id
        for token_id, token in image.delegation_tokens.items()
        if token.has_expired(now_ms) and owner in (None, token.owner)
    )
    return [_remove(image, token_id) for token_id in islice(expired, REMOVED_AT_ONCE)]


def _find(image: ClusterImage, token_id: str) -> DelegationToken:
    found = image.delegation_tokens.get(token_id)
    if found is None:
        raise DelegationTokenNotFound("there is no such delegation token; it may have expired")
    return found


def _check_owner(token: DelegationToken, principal: str) -> None:
    if not token.belongs_to(principal):
        raise DelegationTokenOwnerMismatch(f"{principal} is neither the owner nor a renewer of the delegation token")


def _set_expiry(image: ClusterImage, token: DelegationToken, expires_ms: int) -> Op:
    key = keys.delegation_token(token.token_id)
    changed = replace(token, expires_ms=min(token.max_ms, expires_ms))
    return Put(key, changed.dump(), image.version(key))


def _remove(image: ClusterImage, token_id: str) -> Op:
    key = keys.delegation_token(token_id)
    return Delete(key, image.version(key))
