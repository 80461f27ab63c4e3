"""The delegation tokens of the cluster on one broker: derives their passwords, finds, creates and changes them."""

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from penstock.cluster import keys
from penstock.cluster.controller_task import ControllerTask
from penstock.cluster.delegation_tokens import DelegationToken, DelegationTokenNotFound, DelegationTokensDisabled
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata import Metadata
from penstock.cluster.token_changes import plan_expiry, plan_removal, plan_renewal, plan_token
from penstock.foundation.clock import Clock, conservative_now_ms
from penstock.foundation.delegation_settings import SECRET_KEY, DelegationSettings
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import uuid_text
from penstock.foundation.settings import LONG_MAX

logger = logging.getLogger(__name__)

HMAC_BYTES: Final = 64
HMACS_AT_ONCE: Final = 1000
"""Number of HMACs that are derived in one time slice: some milliseconds."""
NEWS_S: Final = 1.0
"""How long a request about an unknown token waits for it: another broker may have created it just now."""


class DelegationTokens:
    """Delegation tokens by id and by HMAC. The HMAC of a token's id with the secret key of all brokers is the
    password of the token; it is derived when it is needed, and stored nowhere."""

    def __init__(self, settings: DelegationSettings, metadata: Callable[[], Metadata], clock: Clock) -> None:
        self._settings = settings
        self._metadata = metadata
        self._clock = clock
        self._key = settings.secret_key.encode()
        self._indexed: Mapping[str, DelegationToken] = {}
        """The tokens whose HMACs were derived last."""
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}
        """Ids by HMAC; the inverse of `_hmacs`."""

    @property
    def is_enabled(self) -> bool:
        return bool(self._key)

    def check_enabled(self) -> None:
        """Raises DelegationTokensDisabled."""
        if not self.is_enabled:
            raise DelegationTokensDisabled(f"delegation tokens are disabled; set {SECRET_KEY} on all brokers")

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    def hmac(self, token_id: str) -> bytes:
        """Returns the HMAC of a token's id, in the way of Kafka. Its base64 form is the password of the token."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    async def current(self, token_id: str) -> DelegationToken | None:
        """Returns a token that has not expired; None if there is none. Reads the store if this broker's image does
        not have it: another broker may have created or renewed it just now. Raises StoreUnavailable."""
        found = self._metadata().image.delegation_tokens.get(token_id)
        if (found is None or found.has_expired(self.now_ms)) and self._has_peers:
            value = await self._metadata().stored(keys.delegation_token(token_id))
            found = None if value is None else DelegationToken.read(token_id, value)
        return None if found is None or found.has_expired(self.now_ms) else found

    @property
    def _has_peers(self) -> bool:
        return len(self._metadata().image.brokers) > 1

    async def create(
        self, *, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int
    ) -> DelegationToken:
        """Creates a token. `lifetime_ms`: how long it can be renewed; 0 or less for as long as the settings allow.
        Raises PolicyViolation if there are too many tokens."""
        self.check_enabled()
        settings, now_ms = self._settings, self.now_ms
        longest_ms = settings.max_lifetime_ms
        max_ms = min(LONG_MAX, now_ms + (min(longest_ms, lifetime_ms) if lifetime_ms > 0 else longest_ms))
        token = DelegationToken(
            token_id=new_token_id(),
            owner=owner,
            requester=requester,
            renewers=tuple(dict.fromkeys(renewers)),
            issued_ms=now_ms,
            expires_ms=min(max_ms, now_ms + settings.expiry_time_ms),
            max_ms=max_ms,
        )
        await self._metadata().change(lambda image: plan_token(image, token))
        logger.info(
            "delegation_token_created id=%s owner=%r expires_ms=%d by=%r",
            *(token.token_id, owner, token.expires_ms, requester),
        )
        return token

    async def renew(self, given: bytes, *, by: str, period_ms: int) -> DelegationToken:
        """Extends the token with this HMAC; returns it with its new expiry time. `by`: the principal that asks for
        it. `period_ms`: for how long; 0 or less for as long as the settings allow."""
        token_id, now_ms = await self._find(given), self.now_ms
        longest_ms = self._settings.expiry_time_ms
        wanted_ms = min(longest_ms, period_ms) if period_ms > 0 else longest_ms
        await self._metadata().change(lambda image: plan_renewal(image, token_id, by, wanted_ms, now_ms))
        return self._changed(token_id, "renewed", by)

    async def expire(self, given: bytes, *, by: str, period_ms: int) -> DelegationToken:
        """Lets the token with this HMAC expire after `period_ms`, or removes it if that is negative; returns it with
        its new expiry time. `by`: the principal that asks for it."""
        token_id, now_ms = await self._find(given), self.now_ms
        before = self._metadata().image.delegation_tokens[token_id]
        await self._metadata().change(lambda image: plan_expiry(image, token_id, by, period_ms, now_ms))
        if period_ms < 0:
            logger.info("delegation_token_removed id=%s by=%r", token_id, by)
            return replace(before, expires_ms=now_ms)
        return self._changed(token_id, "expiry_set", by)

    def _changed(self, token_id: str, what: str, by: str) -> DelegationToken:
        token = self._metadata().image.delegation_tokens.get(token_id)
        if token is None:
            raise DelegationTokenNotFound("the delegation token was removed at the same time")
        logger.info("delegation_token_%s id=%s expires_ms=%d by=%r", what, token_id, token.expires_ms, by)
        return token

    async def _find(self, given: bytes) -> str:
        self.check_enabled()
        metadata = self._metadata()
        while True:
            if self._index(metadata.image.delegation_tokens):
                break
            await asyncio.sleep(0)
        if len(given) == HMAC_BYTES and self._has_peers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NEWS_S):
                    await metadata.until(lambda image: self._id_of(image, given) is not None)
        found = self._id_of(metadata.image, given)
        if found is None:
            raise DelegationTokenNotFound("there is no delegation token with this HMAC; it may have expired")
        return found

    def _id_of(self, image: ClusterImage, given: bytes) -> str | None:
        self._index(image.delegation_tokens)
        return self._ids.get(given)

    def _index(self, tokens: Mapping[str, DelegationToken]) -> bool:
        """Updates the index by HMAC to these tokens, in one time slice; returns whether it is complete."""
        if tokens is self._indexed:
            return True
        for token_id in self._hmacs.keys() - tokens.keys():
            del self._ids[self._hmacs.pop(token_id)]
        missing = (token_id for token_id in tokens if token_id not in self._hmacs)
        for token_id in islice(missing, HMACS_AT_ONCE):
            derived = self._hmacs[token_id] = self.hmac(token_id)
            self._ids[derived] = token_id
        is_complete = len(self._hmacs) == len(tokens)
        if is_complete:
            self._indexed = tokens
        return is_complete

    async def remove_expired(self, controlling: ControllerTask) -> None:
        """Removes expired tokens again and again while this broker is the controller. Runs until cancelled."""
        while True:
            await asyncio.sleep(self._settings.check_interval_s)
            try:
                while controlling.is_active and await self._remove_some():
                    pass
            except PenstockError as error:
                logger.warning("expired_delegation_tokens_not_removed reason=%r", str(error))

    async def _remove_some(self) -> bool:
        """Removes some expired tokens; returns whether there were any."""
        now_ms, metadata = conservative_now_ms(self._clock), self._metadata()
        before = metadata.image.delegation_tokens
        await metadata.change(lambda image: plan_removal(image, now_ms))
        removed = before.keys() - metadata.image.delegation_tokens.keys()
        if removed:
            logger.info("expired_delegation_tokens_removed count=%d", len(removed))
        return bool(removed)


def new_token_id() -> str:
    """Returns a new random id, in the form of Kafka's UUIDs. As there, it never looks like an option of a command."""
    while (found := uuid_text(secrets.token_bytes(16))).startswith("-"):
        pass
    return found
