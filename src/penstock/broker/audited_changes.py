"""Which requests change the cluster, and the resources that they name, for the audit log. Pure."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from penstock.foundation.codes import ErrorCode
from penstock.security.audit import NAMES_MAX
from penstock.wire.keys import ApiKey
from penstock.wire.schema import fields_of

CHANGES: Final = frozenset(
    (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.ELECT_LEADERS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UPDATE_FEATURES,
        ApiKey.RESTORE_STATE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.CREATE_ACCESS_KEY,
        ApiKey.ALTER_ACCESS_KEYS,
    )
)
_NAMES: Final = frozenset(
    (
        "name",
        "topic",
        "topic_name",
        "topic_names",
        "resource_name",
        "resource_name_filter",
        "principal",
        "principal_filter",
        "group_id",
        "groups_names",
        "entity_name",
        "feature",
        "user",
        "access_key",
    )
)
"""Fields of requests that name resources. Those with values of settings, and salts, are not among them."""
ELEMENTS_MAX: Final = 4 * NAMES_MAX
"""Maximum number of elements of a request or response that are looked at."""


def names_in(request: Any) -> list[str]:
    """Returns the names of the resources in a request; the first ones of a large request."""
    found = (value for name, value in _values(request) if name in _NAMES and isinstance(value, str))
    return list(islice(found, NAMES_MAX + 1))


def has_failed(response: Any) -> bool:
    """Whether a response has an error, for any resource."""
    return any(name == "error_code" and value != ErrorCode.NONE for name, value in _values(response))


def _values(message: Any) -> Iterator[tuple[str, Any]]:
    """Yields the names and values of the fields of a message, and of the messages in it."""
    left = ELEMENTS_MAX
    pending = [message]
    while pending and left > 0:
        current = pending.pop()
        left -= 1
        for field in fields_of(type(current)):
            value = getattr(current, field.name)
            if field.struct is not None and value is not None:
                pending += list(islice(value, left)) if field.is_array else [value]
            elif field.is_array:
                yield from ((field.name, each) for each in islice(value or (), left))
            else:
                yield field.name, value
