"""Store writes that change the SCRAM credentials of users (KIP-554). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.cluster import keys
from penstock.cluster.access_key_changes import user_deletion_ops
from penstock.cluster.image import ClusterImage
from penstock.cluster.users import User
from penstock.coordination.store import ABSENT, Delete, Op, Put
from penstock.foundation.errors import PenstockError, PolicyViolation, ResourceNotFound
from penstock.foundation.scram import ScramCredential, ScramMechanism

USERS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChange:
    """Credentials of one user to set and to delete."""

    name: str
    set: Mapping[ScramMechanism, ScramCredential] = field(default_factory=dict)
    delete: frozenset[ScramMechanism] = frozenset()


def plan_user_changes(
    image: ClusterImage, changes: Sequence[UserChange], failed: dict[str, PenstockError]
) -> list[Op]:
    """Returns the writes for all changes that are possible. Adds the errors of the others to `failed`, by user.

    A user whose last SCRAM credential is deleted is deleted with its access keys."""
    ops: list[Op] = []
    failed.clear()
    for change in changes:
        try:
            ops += _plan(image, change)
        except PenstockError as error:
            failed[change.name] = error
    if ops:
        ops.append(Put(keys.USER_CHANGES, keys.encode(image.revision), image.version(keys.USER_CHANGES)))
    return ops


def _plan(image: ClusterImage, change: UserChange) -> list[Op]:
    user = image.users.get(change.name)
    known = {} if user is None else dict(user.scram)
    if not change.delete <= known.keys():
        raise ResourceNotFound("Attempt to delete a user credential that does not exist")
    if user is None and len(image.users) >= USERS_MAX:
        raise PolicyViolation(f"there are {USERS_MAX} users, which is the limit; delete some first")
    wanted = {mechanism: one for mechanism, one in known.items() if mechanism not in change.delete}
    wanted |= change.set
    key = keys.user(change.name)
    version = image.version(key)
    if not wanted:
        return [Delete(key, version), *user_deletion_ops(image, change.name)]
    return [Put(key, User(name=change.name, scram=wanted).dump(), version)]


def bootstrap_ops(user: User) -> list[Op]:
    """Returns the writes that create a user in a store that no broker uses. They fail if the user exists."""
    return [Put(keys.user(user.name), user.dump(), ABSENT)]
