"""Checks, parses and logs requests about ACLs."""

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

from penstock.broker.broker import Broker
from penstock.foundation.acls import Acl, AclFilter, Operation, Pattern, PatternType, Permission, ResourceType
from penstock.foundation.errors import InvalidRequest, SecurityDisabled
from penstock.wire.messages.create_acls import AclCreation
from penstock.wire.messages.delete_acls import DeleteAclsFilter
from penstock.wire.messages.describe_acls import DescribeAclsRequest

logger = logging.getLogger(__name__)

LOGGED_MAX: Final = 100
"""Maximum number of ACLs with a line of their own in the log, for each transaction of the store."""

E = TypeVar("E", ResourceType, PatternType, Operation, Permission)


def no_authorizer(broker: Broker) -> None:
    """Raises SecurityDisabled if the broker has no authorizer, as Kafka does."""
    if broker.authorizer is None:
        raise SecurityDisabled("No Authorizer is configured.")


def log_changes(event: str, changed: Iterable[tuple[Pattern, Acl]], principal: str) -> None:
    left = iter(changed)
    for pattern, acl in islice(left, LOGGED_MAX):
        logger.info("%s pattern=%r acl=%r by=%r", event, tuple(pattern), tuple(acl), principal)
    more = sum(1 for _ in left)
    if more:
        logger.info("%s more=%d by=%r", event, more, principal)


def acl_of(creation: AclCreation) -> tuple[Pattern, Acl]:
    """Returns the ACL that a client wants to create. Raises InvalidRequest for unknown numbers."""
    pattern = Pattern(
        _parse(ResourceType, creation.resource_type),
        _parse(PatternType, creation.resource_pattern_type),
        creation.resource_name,
    )
    operation = _parse(Operation, creation.operation)
    return pattern, Acl(creation.principal, creation.host, operation, _parse(Permission, creation.permission_type))


def filter_of(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Returns the filter of a request. Raises InvalidRequest for unknown numbers."""
    return AclFilter(
        resource_type=_parse(ResourceType, wanted.resource_type_filter),
        pattern_type=_parse(PatternType, wanted.pattern_type_filter),
        name=wanted.resource_name_filter,
        principal=wanted.principal_filter,
        host=wanted.host_filter,
        operation=_parse(Operation, wanted.operation),
        permission=_parse(Permission, wanted.permission_type),
    )


def _parse(enum: type[E], number: int) -> E:
    try:
        return enum(number)
    except ValueError:
        known = ", ".join(f"{int(each)} ({each.name})" for each in enum)
        raise InvalidRequest(f"there is no {enum.__name__} {number}; expected one of {known}") from None
