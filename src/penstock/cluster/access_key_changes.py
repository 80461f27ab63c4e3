"""Store writes that create, disable, enable, encrypt anew and delete access keys of users. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from penstock.cluster import keys
from penstock.cluster.access_keys import (
    KEY_BYTES_MAX,
    KEYS_MAX,
    KEYS_PER_USER_MAX,
    StoredKey,
    UserKeys,
    dump_keys,
)
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import Delete, Op, Put
from penstock.foundation.errors import InvalidRequest, PolicyViolation, ResourceNotFound

_NONE: Final[UserKeys] = ()


def plan_key(image: ClusterImage, key: StoredKey) -> list[Op]:
    """Returns the writes that create an access key. Raises PolicyViolation if there are too many, or if the others
    are encrypted with another key: some broker would not know one or the other."""
    size = len(keys.encode(key.dump()))
    if size > KEY_BYTES_MAX:
        raise InvalidRequest(f"the access key has {size} bytes, at most {KEY_BYTES_MAX}; give it fewer patterns")
    of_user = image.access_keys.get(key.user, _NONE)
    if len(of_user) >= KEYS_PER_USER_MAX:
        raise PolicyViolation(f"user {key.user!r} has {KEYS_PER_USER_MAX} access keys, which is the limit")
    if sum(map(len, image.access_keys.values())) >= KEYS_MAX:
        raise PolicyViolation(f"there are {KEYS_MAX} access keys, which is the limit; delete some first")
    for other in image.access_keys.values():
        if any(each.cipher != key.cipher for each in other):
            raise PolicyViolation(
                "the store has access keys that are encrypted with another sqs.secret.key than that of this broker; "
                "set the same ones on all brokers, and run `penstock user access-key reencrypt`"
            )
    return _write(image, key.user, (*of_user, key))


def plan_reencryption(
    image: ClusterImage, users: Iterable[str], fingerprint: str, encrypt: Callable[[StoredKey], str | None]
) -> list[Op]:
    """Returns the writes that encrypt the access keys of users with the secret key that has this fingerprint.
    `encrypt` returns the new secret of a key, or None for one that stays as it is."""
    ops: list[Op] = []
    for user in users:
        before = image.access_keys.get(user, _NONE)
        after = tuple(
            key
            if key.cipher == fingerprint or (secret := encrypt(key)) is None
            else replace(key, secret=secret, cipher=fingerprint)
            for key in before
        )
        if after != before:
            ops.append(_put(image, user, after))
    return [*ops, _counter(image)] if ops else []


def plan_enabled(image: ClusterImage, access_key: str, is_enabled: bool) -> list[Op]:
    """Returns the writes that enable or disable an access key; none if it is already."""
    return _change(image, access_key, lambda key: replace(key, is_enabled=is_enabled))


def plan_deletion(image: ClusterImage, access_key: str) -> list[Op]:
    """Returns the writes that delete an access key. Raises ResourceNotFound."""
    return _change(image, access_key, lambda key: None)


def plan_deletion_of_all(image: ClusterImage, user: str) -> list[Op]:
    """Returns the writes that delete all access keys of a user. Raises ResourceNotFound if there are none."""
    if user not in image.access_keys:
        raise ResourceNotFound(f"user {user!r} has no access keys; `penstock user list` lists the users")
    return _write(image, user, _NONE)


def user_deletion_ops(image: ClusterImage, user: str) -> list[Op]:
    """Returns the writes that delete the access keys of a user that is deleted; none if it has none. The caller
    increments the counter of changes."""
    return [_put(image, user, _NONE)] if user in image.access_keys else []


def find_key(image: ClusterImage, access_key: str) -> StoredKey:
    """Returns an access key. Raises ResourceNotFound."""
    for of_user in image.access_keys.values():
        for key in of_user:
            if key.access_key == access_key:
                return key
    raise ResourceNotFound(
        f"there is no access key {access_key[:128]!r}; `penstock user access-key list` lists those in the store"
    )


def _change(image: ClusterImage, access_key: str, change: Callable[[StoredKey], StoredKey | None]) -> list[Op]:
    key = find_key(image, access_key)
    before = image.access_keys[key.user]
    after = tuple(
        made for each in before if (made := change(each) if each.access_key == access_key else each) is not None
    )
    return _write(image, key.user, after) if after != before else []


def _write(image: ClusterImage, user: str, found: UserKeys) -> list[Op]:
    return [_put(image, user, found), _counter(image)]


def _counter(image: ClusterImage) -> Op:
    """Returns the write of the counter of users, so that no key is created while its user is being deleted."""
    return Put(keys.USER_CHANGES, keys.encode(image.revision), image.version(keys.USER_CHANGES))


def _put(image: ClusterImage, user: str, found: UserKeys) -> Op:
    place = keys.access_keys(user)
    version = image.version(place)
    return Put(place, dump_keys(found), version) if found else Delete(place, version)
