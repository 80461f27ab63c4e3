"""The access keys in the store, as one broker sees them: finds them by id, and decrypts their secrets once."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, Protocol

from penstock.foundation.access_key_settings import ADVICE, SQS_SECRET_KEY
from penstock.foundation.errors import InvalidConfig
from penstock.security.credentials import AccessKey
from penstock.security.secret_cipher import SecretCipher

logger = logging.getLogger(__name__)

ID_PREFIX: Final = "AKIA"
ID_CHARS: Final = 20
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_SECRET_BYTES: Final = 30
"""Makes secrets of 40 characters, as long as those of AWS."""
_NAMED_MAX: Final = 10
"""Maximum number of access keys that a line of the log lists."""


class Stored(Protocol):
    """An access key in the store: `penstock.cluster.access_keys`."""

    @property
    def access_key(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def secret(self) -> str: ...
    @property
    def cipher(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def actions(self) -> tuple[str, ...]: ...
    @property
    def queues(self) -> tuple[str, ...]: ...
    @property
    def subjects(self) -> tuple[str, ...]: ...
    @property
    def is_enabled(self) -> bool: ...


class StoredKeys:
    """Access keys of the store by id. They follow the metadata image; secrets are decrypted at their first use."""

    def __init__(
        self,
        secret_keys: Sequence[bytes],
        image_keys: Callable[[], Mapping[str, Sequence[Stored]]],
        tls_listeners: frozenset[str] = frozenset(),
    ) -> None:
        """`secret_keys`: the first one encrypts secrets, all of them decrypt; without any, the keys in the store
        cannot be used. `image_keys` returns all access keys by user. `tls_listeners`: names of the Kafka listeners
        with TLS. Raises InvalidConfig."""
        self._ciphers = {cipher.fingerprint: cipher for cipher in map(SecretCipher, secret_keys)}
        self._image_keys = image_keys
        self._tls_listeners = tls_listeners
        self._seen: Mapping[str, Sequence[Stored]] = {}
        """The part of the image from which `_by_id` was made."""
        self._by_id: dict[str, Stored] = {}
        self._usable: dict[str, tuple[Stored, AccessKey]] = {}
        """Decrypted keys by id, with what they were made from."""
        self._unusable: set[str] = set()
        """Ids of keys that cannot be decrypted here, and are in the log."""
        self._has_seen_keys = False

    @property
    def cipher(self) -> SecretCipher:
        """Encrypts new secrets. Raises InvalidConfig, with advice, if this broker cannot."""
        if not self._ciphers:
            raise InvalidConfig(
                f"this broker has no {SQS_SECRET_KEY}, without which there are no access keys; {ADVICE}"
            )
        return next(iter(self._ciphers.values()))

    @property
    def is_required(self) -> bool:
        """Whether requests must be signed: if this broker has the key, or has seen access keys in the store. Once it
        has, it demands signatures until it stops: the deletion of the last key must not open it to all clients."""
        self.follow()
        return bool(self._ciphers) or self._has_seen_keys

    def may_send_secret(self, listener: str, host: str) -> bool:
        """Whether no other machine can read a response: the client uses TLS, or is on this machine."""
        if listener in self._tls_listeners:
            return True
        try:
            address = ip_address(host.removeprefix("/").strip("[]"))
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback

    def find(self, access_key: str) -> AccessKey | None:
        """Returns an enabled access key of the store; None if there is none, or if its secret is not known here."""
        self.follow()
        stored = self._by_id.get(access_key)
        if stored is None or not stored.is_enabled:
            return None
        known = self._usable.get(access_key)
        if known is not None and known[0] is stored:
            return known[1]
        secret = self._decrypt(stored)
        if secret is None:
            return None
        made = AccessKey(
            access_key=stored.access_key,
            secret=secret,
            owner=stored.owner,
            actions=stored.actions,
            queues=stored.queues,
            subjects=stored.subjects,
            user=stored.user,
        )
        self._usable[access_key] = stored, made
        return made

    def _decrypt(self, stored: Stored) -> str | None:
        cipher = self._ciphers.get(stored.cipher)
        if cipher is None or stored.access_key in self._unusable:
            return None
        secret = cipher.decrypt(stored.secret, stored.access_key, stored.user)
        if secret is None:
            self._unusable.add(stored.access_key)
            logger.error(
                "access_key_is_damaged key=%s reason='its secret in the store was changed'", stored.access_key
            )
        return secret

    def refusal(self, access_key: str) -> str:
        """Returns why an access key of the store cannot be used at this broker; empty if the store has none."""
        if access_key not in self._unusable:
            return ""
        what = "differs from the one with which it was encrypted" if self._ciphers else "is not set"
        return f"The access key {access_key} cannot be used at this broker, whose {SQS_SECRET_KEY} {what}."

    def is_usable(self, stored: Stored) -> bool:
        """Whether this broker has the key with which the secret of an access key is encrypted."""
        return stored.cipher in self._ciphers

    def reencrypted(self, stored: Stored) -> str | None:
        """Returns the secret of an access key, encrypted with the first key; None if it cannot be decrypted here."""
        cipher = self._ciphers.get(stored.cipher)
        secret = None if cipher is None else cipher.decrypt(stored.secret, stored.access_key, stored.user)
        return None if secret is None else self.cipher.encrypt(secret, stored.access_key, stored.user)

    def follow(self) -> None:
        """Updates the keys to the metadata image. Logs which ones cannot be used here."""
        current, before = self._image_keys(), self._seen
        if current is before:
            return
        self._seen = current
        changed = [user for user, of_user in current.items() if before.get(user) is not of_user]
        removed = {
            key.access_key
            for user in (*changed, *(user for user in before if user not in current))
            for key in before.get(user, ())
        }
        fresh = []
        for key in (key for user in changed for key in current[user]):
            removed.discard(key.access_key)
            self._by_id[key.access_key] = key
            known = self._usable.get(key.access_key)
            if known is not None and known[0] == key:  # another key of the user has changed
                self._usable[key.access_key] = key, known[1]
            else:
                self._usable.pop(key.access_key, None)
            if not self.is_usable(key) and key.access_key not in self._unusable:
                fresh.append(key.access_key)
        for name in removed:
            del self._by_id[name]
            self._usable.pop(name, None)
            self._unusable.discard(name)
        self._has_seen_keys = self._has_seen_keys or bool(self._by_id)
        if fresh:
            self._unusable.update(fresh)
            self._log_unusable(sorted(fresh))

    def _log_unusable(self, names: list[str]) -> None:
        reason = f"{SQS_SECRET_KEY} differs" if self._ciphers else f"{SQS_SECRET_KEY} is not set"
        logger.warning(
            "access_keys_are_unusable keys=%s count=%d reason=%r",
            ",".join(names[:_NAMED_MAX]),
            len(names),
            f"{reason}; set the one with which they were made, the same on all brokers",
        )


def new_access_key() -> str:
    """Returns the id of a new access key, in the form of AWS."""
    return ID_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(ID_CHARS - len(ID_PREFIX)))


def new_secret() -> str:
    """Returns a new secret, of letters, digits, `-` and `_`."""
    return secrets.token_urlsafe(_SECRET_BYTES)
