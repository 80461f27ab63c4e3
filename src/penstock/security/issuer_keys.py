"""The public keys of an issuer of tokens (a JSON Web Key Set), read from a URL and read again as they change."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from penstock.foundation.errors import PenstockError
from penstock.foundation.oauth_settings import TokenRules
from penstock.foundation.small_download import DownloadFailed, download
from penstock.security.errors import LoginFailed, TokensNotChecked

logger = logging.getLogger(__name__)

KEYS_MAX: Final = 256
BYTES_MAX: Final = 1 << 20
UNKNOWN_PAUSE_S: Final = 10.0
"""How often keys are read again because a token names one that is not known, which any client can do."""
_DOUBLINGS_MAX: Final = 30
_NO_KEY: Final = "the issuer has no such key"


class KeysInvalid(PenstockError):
    """The content of the URL is not a set of keys."""


def parse_keys(content: bytes) -> list[dict[str, Any]]:
    """Returns the keys of a JSON Web Key Set that are for signatures and not secret. Raises KeysInvalid."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise KeysInvalid("it is not JSON") from error
    entries = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise KeysInvalid('it is not a JSON Web Key Set: expected {"keys": [{…}, …]}')
    usable = [each for each in entries if each.get("kty") in ("RSA", "EC", "OKP") and each.get("use", "sig") == "sig"]
    if not usable or len(usable) > KEYS_MAX:
        raise KeysInvalid(f"it has {len(usable)} public keys for signatures; expected 1 to {KEYS_MAX}")
    return usable


class IssuerKeys:
    """The keys of one issuer. They are first read when the first token is checked."""

    def __init__(self, rules: TokenRules, read: Callable[[], Awaitable[bytes]] | None = None) -> None:
        """`read`: returns the content of the URL; raises DownloadFailed."""
        self._rules = rules
        self._read = read or self._download
        self._keys: list[dict[str, Any]] = []
        self._ready: dict[tuple[str | None, str], PyJWK] = {}
        """Keys that have been used, by id and algorithm."""
        self._due_s = self._unknown_due_s = 0.0
        """Times of the event loop: from when keys are read again, and read again because of an unknown one."""
        self._failures = 0
        self._reading: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> PyJWK:
        """Returns a key. Raises LoginFailed if the issuer has no such key, TokensNotChecked without any keys."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._due_s:
            task = self._refresh()
            if not self._keys:
                await asyncio.shield(task)
        if not self._keys:
            raise TokensNotChecked
        found = self._lookup(key_id, algorithm)
        if found is None and now_s >= self._unknown_due_s:
            await asyncio.shield(self._refresh())
            found = self._lookup(key_id, algorithm)
        if found is None:
            raise LoginFailed(_NO_KEY, _NO_KEY)
        return found

    def _lookup(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """Returns the key with this id, or without an id the only one that fits."""
        place = key_id, algorithm
        if place in self._ready:
            return self._ready[place]
        fitting = [
            each
            for each in self._keys
            if (key_id is None or each.get("kid") == key_id) and each.get("alg", algorithm) == algorithm
        ]
        made = [key for each in fitting if (key := _made(each, algorithm)) is not None]
        if len(made) != 1:
            return None
        self._ready[place] = made[0]
        return made[0]

    def _refresh(self) -> asyncio.Task[None]:
        """Returns the task that reads the keys again; starts it if there is none."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._load())
        return self._reading

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        rules = self._rules
        try:
            self._keys = parse_keys(await self._read())
        except (DownloadFailed, KeysInvalid) as error:
            pause_s = min(rules.backoff_max_s, rules.backoff_s * 2.0 ** min(_DOUBLINGS_MAX, self._failures))
            self._due_s = self._unknown_due_s = loop.time() + pause_s
            self._failures += 1
            if self._failures == 1:
                logger.warning("issuer_keys_not_read url=%s reason=%r", rules.keys_url, str(error))
            return
        if self._failures:
            logger.info("issuer_keys_read url=%s keys=%d", rules.keys_url, len(self._keys))
        self._ready.clear()
        self._failures = 0
        self._due_s = loop.time() + rules.refresh_s
        self._unknown_due_s = loop.time() + min(UNKNOWN_PAUSE_S, rules.refresh_s)

    async def _download(self) -> bytes:
        rules = self._rules
        return await asyncio.to_thread(download, rules.keys_url, authorities=rules.authorities, bytes_max=BYTES_MAX)


def _made(key: dict[str, Any], algorithm: str) -> PyJWK | None:
    """Returns a key that can check signatures of an algorithm; None if it cannot."""
    try:
        return PyJWK(key, algorithm)
    except PyJWTError:
        return None
