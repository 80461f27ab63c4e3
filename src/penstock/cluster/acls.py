"""ACLs as they are kept in the store: one key for each resource pattern, with all its ACLs. Pure."""

from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Final

from penstock.cluster import keys
from penstock.foundation.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.foundation.errors import InvalidRequest

NAME_CHARS_MAX: Final = 1024
"""Maximum length of a resource name and of a principal."""

Acls = Mapping[Pattern, tuple[Acl, ...]]
"""All ACLs of a cluster, by resource pattern."""


def dump_acls(acls: Collection[Acl]) -> bytes:
    """Returns the ACLs of one pattern as a value for the store."""
    return keys.encode([[acl.principal, acl.host, int(acl.operation), int(acl.permission)] for acl in sorted(acls)])


def read_acls(value: Sequence[Sequence[Any]]) -> tuple[Acl, ...]:
    """Parses the value of a pattern's key."""
    return tuple(
        Acl(principal, host, Operation(operation), Permission(permission))
        for principal, host, operation, permission in value
    )


def check_acl(pattern: Pattern, acl: Acl) -> None:
    """Raises InvalidRequest if there cannot be such an ACL; its enums are valid, but may be those of filters."""
    if pattern.resource_type is ResourceType.ANY:
        raise InvalidRequest("the resource type ANY is only for filters; name one type")
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(
            f"the pattern type {pattern.pattern_type.name} is only for filters; use LITERAL or PREFIXED"
        )
    if acl.operation is Operation.ANY or acl.permission is Permission.ANY:
        raise InvalidRequest("the operation or permission ANY is only for filters; use ALL for all operations")
    if not pattern.name:
        raise InvalidRequest("the resource name is empty")
    if len(pattern.name) > NAME_CHARS_MAX or len(acl.principal) > NAME_CHARS_MAX:
        raise InvalidRequest(f"resource names and principals have at most {NAME_CHARS_MAX} characters")
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidRequest(
            f"the principal {acl.principal!r} is not TYPE:NAME; expected User:NAME, or User:* for all"
        )
    _check_host(acl.host)


def _check_host(host: str) -> None:
    if host == WILDCARD:
        return
    try:
        if "/" in host:
            ip_network(host)
        else:
            ip_address(host)
    except ValueError:
        raise InvalidRequest(
            f"the host {host!r} is not an IP address, a network such as 10.0.0.0/8, or * for all; names of hosts are "
            "not looked up"
        ) from None
