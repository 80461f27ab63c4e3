"""Store writes that change quotas of clients. Pure."""

from collections.abc import Mapping
from typing import Final

from penstock.cluster import keys
from penstock.cluster.client_quotas import Change
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import Delete, Op, Put
from penstock.foundation.errors import PenstockError, PolicyViolation
from penstock.foundation.quota_entities import Entity

QUOTAS_MAX: Final = 100_000
"""Maximum number of entities with quotas."""


def plan_quotas(
    image: ClusterImage, changes: Mapping[Entity, Change], failed: dict[Entity, PenstockError]
) -> list[Op]:
    """Returns the writes that change quotas. Adds the errors of entities that cannot have them to `failed`."""
    failed.clear()
    ops: list[Op] = []
    count = len(image.client_quotas)
    for entity, change in changes.items():
        known = dict(image.client_quotas.get(entity, {}))
        wanted = {name: value for name, value in (known | dict(change)).items() if value is not None}
        if wanted == known:
            continue
        if not known and count == QUOTAS_MAX:
            failed[entity] = PolicyViolation(f"there are quotas for {QUOTAS_MAX} entities, which is the limit")
            continue
        count += not known
        key = keys.client_quota(entity)
        version = image.version(key)
        ops.append(Put(key, keys.encode(wanted), version) if wanted else Delete(key, version))
    if ops:
        ops.append(Put(keys.QUOTA_CHANGES, keys.encode(image.revision), image.version(keys.QUOTA_CHANGES)))
    return ops
