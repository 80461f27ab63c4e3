"""Store writes that create and delete ACLs. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from penstock.cluster import keys
from penstock.cluster.acls import dump_acls
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import Delete, Op, Put
from penstock.foundation.acls import Acl, Pattern
from penstock.foundation.errors import PenstockError, PolicyViolation

ACLS_MAX: Final = 100_000
"""Maximum number of ACLs of a cluster: each broker has all of them in memory."""
PATTERN_BYTES_MAX: Final = 256 << 10
"""Maximum size of the stored ACLs of one resource pattern: ZooKeeper limits the size of a value."""
PATTERNS_AT_ONCE: Final = 50
"""Maximum number of resource patterns that are changed in one transaction of the store."""
BYTES_AT_ONCE: Final = PATTERN_BYTES_MAX
"""Approximate size of the ACLs that are written in one transaction, unless a single pattern has more."""

ACL_BYTES: Final = 30
"""Approximate stored size of an ACL without its principal."""


def parts_of(image: ClusterImage, patterns: Mapping[Pattern, Sequence[Acl]]) -> Iterator[Sequence[Pattern]]:
    """Splits the patterns whose ACLs a request changes: each part fits in one transaction of the store. Their values
    are the ACLs that the request adds."""
    part: list[Pattern] = []
    size = 0
    for pattern, added in patterns.items():
        more = sum(len(acl.principal) + ACL_BYTES for acl in (*image.acls.get(pattern, ()), *added))
        if part and (len(part) == PATTERNS_AT_ONCE or size + more > BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(pattern)
        size += more
    if part:
        yield part


def plan_creation(
    image: ClusterImage, wanted: Mapping[Pattern, Sequence[Acl]], failed: dict[Pattern, PenstockError]
) -> list[Op]:
    """Returns the writes that add ACLs. Adds the errors of patterns that cannot have them to `failed`."""
    failed.clear()
    ops: list[Op] = []
    count = sum(map(len, image.acls.values()))
    for pattern, added in wanted.items():
        known = set(image.acls.get(pattern, ()))
        together = known | set(added)
        grown = count + len(together) - len(known)
        if together == known:
            continue
        value = dump_acls(together)
        if grown > ACLS_MAX:
            failed[pattern] = PolicyViolation(
                f"there are {count} ACLs of at most {ACLS_MAX}; delete some, use prefixes"
            )
        elif len(value) > PATTERN_BYTES_MAX:
            failed[pattern] = PolicyViolation(f"{pattern.name!r} has {len(known)} ACLs, no more fit; delete some")
        else:
            count = grown
            ops.append(_put(image, pattern, value))
    return _with_counter(image, ops)


def plan_deletion(
    image: ClusterImage, wanted: Mapping[Pattern, AbstractSet[Acl]], gone: dict[Pattern, set[Acl]]
) -> list[Op]:
    """Returns the writes that delete those of the ACLs that are there; adds these to `gone`."""
    gone.clear()
    ops: list[Op] = []
    for pattern, acls in wanted.items():
        known = image.acls.get(pattern, ())
        left = [acl for acl in known if acl not in acls]
        if len(left) < len(known):
            gone[pattern] = set(known).difference(left)
            ops.append(_put(image, pattern, dump_acls(left) if left else None))
    return _with_counter(image, ops)


def _put(image: ClusterImage, pattern: Pattern, value: bytes | None) -> Op:
    key = keys.acls(pattern)
    version = image.version(key)
    return Delete(key, version) if value is None else Put(key, value, version)


def _with_counter(image: ClusterImage, ops: list[Op]) -> list[Op]:
    """Adds the counter of changes to the writes: the key of a pattern can be deleted and created again."""
    return [*ops, Put(keys.ACL_CHANGES, keys.encode(image.revision), image.version(keys.ACL_CHANGES))] if ops else []
