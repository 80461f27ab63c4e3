"""Access keys of users (SQS and the schema registry) as they are kept in the store. Pure.

All access keys of a user are in one value of the store. Their secrets are encrypted with a key that the store has
not: security/secret_cipher.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.cluster import keys
from penstock.foundation.errors import InvalidRequest

KEYS_MAX: Final = 10_000
"""Maximum number of access keys of a cluster: each broker has all of them in memory."""
KEYS_PER_USER_MAX: Final = 10
KEY_BYTES_MAX: Final = 2048
"""Maximum size of a stored access key, most of it patterns, which take a broker some milliseconds to compile."""
DEFAULT_ACCOUNT: Final = "000000000000"
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_ALL: Final = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """One access key of a user, with its encrypted secret."""

    access_key: str
    user: str
    secret: str = field(repr=False)
    """The encrypted secret."""
    cipher: str
    """The fingerprint of the key with which the secret is encrypted."""
    owner: str = DEFAULT_ACCOUNT
    actions: tuple[str, ...] = _ALL
    queues: tuple[str, ...] = _ALL
    subjects: tuple[str, ...] = _ALL
    created_ms: int
    is_enabled: bool = True

    def dump(self) -> dict[str, Any]:
        """Returns the key as a part of the value for the store."""
        return {
            "access_key": self.access_key,
            "secret": self.secret,
            "cipher": self.cipher,
            "owner": self.owner,
            "actions": self.actions,
            "queues": self.queues,
            "subjects": self.subjects,
            "created_ms": self.created_ms,
            "enabled": self.is_enabled,
        }

    @classmethod
    def read(cls, user: str, value: Mapping[str, Any]) -> "StoredKey":
        return cls(
            access_key=value["access_key"],
            user=user,
            secret=value["secret"],
            cipher=value["cipher"],
            owner=value["owner"],
            actions=tuple(value["actions"]),
            queues=tuple(value["queues"]),
            subjects=tuple(value["subjects"]),
            created_ms=value["created_ms"],
            is_enabled=value["enabled"],
        )


UserKeys = tuple[StoredKey, ...]
"""The access keys of one user, the oldest first."""


def dump_keys(found: Sequence[StoredKey]) -> bytes:
    """Returns the access keys of a user as a value for the store."""
    return keys.encode({"keys": [each.dump() for each in found]})


def read_keys(user: str, value: Mapping[str, Any]) -> UserKeys:
    """Parses the access keys of a user."""
    return tuple(StoredKey.read(user, each) for each in value["keys"])


def check_account(account: str) -> None:
    """Raises InvalidRequest if an access key cannot belong to this account."""
    if not _ACCOUNT.fullmatch(account):
        raise InvalidRequest(f"the account {account[:100]!r} is not an account id; expected 12 digits")


def check_patterns(name: str, patterns: Sequence[str]) -> None:
    """Raises InvalidRequest if an access key cannot have these patterns of actions, queues or subjects."""
    if len(patterns) > KEY_BYTES_MAX:
        raise InvalidRequest(f"{name} has {len(patterns)} patterns; a key has at most {KEY_BYTES_MAX} bytes in all")
    size = sum(map(len, patterns))
    if size > KEY_BYTES_MAX:
        raise InvalidRequest(
            f"{name} has patterns of {size} characters; a key has at most {KEY_BYTES_MAX} bytes in all"
        )
    for each in patterns:
        if not each or not each.isprintable():
            raise InvalidRequest(f"{name} has the pattern {each[:100]!r}; expected printable text such as payments-*")
