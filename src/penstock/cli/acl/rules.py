"""Builds ACLs and filters from the names of users, resources and operations on the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import click

from penstock.client.acls import AclBinding
from penstock.cluster.acls import check_acl
from penstock.foundation.acls import (
    OPERATIONS_OF,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.foundation.errors import InvalidRequest

USER: Final = "User:"
Role = Mapping[ResourceType, tuple[Operation, ...]]
PRODUCER: Final[Role] = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER: Final[Role] = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
Permitted = tuple[str | None, Permission]
"""A principal, and whether an operation is allowed or denied to it."""


def parse_principal(text: str) -> str:
    """Returns the principal of a user name; `TYPE:NAME` as it is. Raises ValueError.

    >>> parse_principal("orders"), parse_principal("*"), parse_principal("Group:staff")
    ('User:orders', 'User:*', 'Group:staff')
    """
    kind, colon, name = text.partition(":")
    if not text or (colon and not (kind and name)):
        raise ValueError(f"{text!r} is no user; expected a user name, * for all users, or TYPE:NAME")
    if not colon:
        return USER + text
    if kind.lower() == "user" and f"{kind}:" != USER:
        raise ValueError(f"the type of principal {kind!r} does not exist; write {USER}{name}")
    return text


def user_resource(text: str) -> str:
    """Returns the name of a resource of type USER: a principal, or * for all. Raises ValueError."""
    return text if text == WILDCARD else parse_principal(text)


def user_of(principal: str) -> str:
    """Returns the text that `parse_principal` reads as this principal; a short one if possible.

    >>> user_of("User:orders"), user_of("Group:staff"), user_of("User:a:b")
    ('orders', 'Group:staff', 'User:a:b')
    """
    name = principal.removeprefix(USER)
    return principal if ":" in name else name


def operation_name(operation: Operation) -> str:
    return operation.name.lower().replace("_", "-")


def resource_name(resource_type: ResourceType) -> str:
    return resource_type.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources that a command names."""

    names: Mapping[ResourceType, tuple[str, ...]]
    """Names by type; only types with names."""
    prefix: bool
    """Whether the names are prefixes."""

    def patterns(self) -> list[Pattern]:
        return [Pattern(kind, self._pattern_type(kind), name) for kind, names in self.names.items() for name in names]

    def _pattern_type(self, resource_type: ResourceType) -> PatternType:
        is_prefix = self.prefix and resource_type is not ResourceType.CLUSTER
        return PatternType.PREFIXED if is_prefix else PatternType.LITERAL

    def check_names(self) -> None:
        """Raises UsageError if a name has a wildcard: ACLs know none but * for all names."""
        for pattern in self.patterns():
            if pattern.name == WILDCARD and pattern.pattern_type is PatternType.PREFIXED:
                raise click.UsageError("* stands for all names already; leave out --prefix")
            if pattern.name != WILDCARD and pattern.name.endswith(WILDCARD):
                option, name = resource_name(pattern.resource_type), pattern.name.rstrip(WILDCARD)
                raise click.UsageError(
                    f"{pattern.name!r} would be taken literally; for all names that begin with {name!r}, give "
                    f"--{option} {name} --prefix"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The ACLs that the options of `add` and `remove` describe."""

    resources: Resources
    permitted: Sequence[Permitted]
    hosts: Sequence[str]
    operations: Sequence[Operation]
    producer: bool
    consumer: bool

    def to_add(self) -> list[AclBinding]:
        """Returns the ACLs to create. Raises UsageError if there cannot be such ACLs."""
        targets = self._operations(Operation.ALL)
        if not self.permitted:
            raise click.UsageError("nothing says who; give --allow USER or --deny USER")
        if not self.resources.names:
            raise click.UsageError(
                "nothing says what; give --topic, --group, --transactional-id, --cluster or --user"
            )
        self.resources.check_names()
        bindings = []
        for (principal, permission), host, (pattern, operation) in product(
            self.permitted, self.hosts or [WILDCARD], targets
        ):
            if principal is None:
                continue
            if principal.endswith(WILDCARD) and principal != USER + WILDCARD:
                raise click.UsageError(f"{user_of(principal)!r}: name each user, or give * for all users")
            bindings.append(AclBinding(pattern, Acl(principal, host, operation, permission)))
        for binding in bindings:
            try:
                check_acl(*binding)
            except InvalidRequest as error:
                raise click.UsageError(error.message) from error
            check_operation(binding.pattern.resource_type, binding.acl.operation)
        return list(dict.fromkeys(bindings))

    def to_remove(self) -> list[AclFilter]:
        """Returns filters for the ACLs to delete: options that are not given match all."""
        if not (self.permitted or self.resources.names):
            raise click.UsageError("nothing says what to remove; give a resource such as --topic NAME, or a user")
        targets: Sequence[tuple[Pattern | None, Operation]] = self._operations(Operation.ANY)
        if not self.resources.names:
            targets = [(None, each) for each in self.operations or [Operation.ANY]]
        permitted = self.permitted or [(None, Permission.ANY)]
        if self.producer or self.consumer:  # roles only allow
            permitted = [(principal, Permission.ALLOW) for principal, _ in permitted]
        hosts: Sequence[str | None] = self.hosts or [None]
        return [
            filter_of(pattern, principal, host, operation, permission)
            for (principal, permission), host, (pattern, operation) in product(permitted, hosts, targets)
        ]

    def _operations(self, default: Operation) -> list[tuple[Pattern, Operation]]:
        """Returns the operations on each resource: those of the roles if there are any."""
        patterns = self.resources.patterns()
        roles = self._roles()
        if not roles:
            return [(pattern, each) for pattern in patterns for each in self.operations or [default]]
        return [
            (pattern, operation)
            for pattern in patterns
            for operation in dict.fromkeys(each for role in roles for each in role.get(pattern.resource_type, ()))
        ]

    def _roles(self) -> list[Role]:
        roles = [role for role, is_given in ((PRODUCER, self.producer), (CONSUMER, self.consumer)) if is_given]
        if not roles:
            return []
        if self.operations or any(permission is Permission.DENY for _, permission in self.permitted):
            raise click.UsageError(
                "--producer and --consumer allow their own operations; leave out --operation, --deny"
            )
        for kind in self.resources.names:
            if not any(kind in role for role in roles):
                raise click.UsageError(
                    f"--{resource_name(kind)} has nothing to do with this role; leave it out, or give --operation in "
                    "place of the role"
                )
        if ResourceType.TOPIC not in self.resources.names:
            raise click.UsageError("--producer and --consumer need --topic NAME")
        if self.consumer and ResourceType.GROUP not in self.resources.names:
            raise click.UsageError("--consumer needs --group NAME; without a group, give --operation read")
        return roles


def filter_of(
    pattern: Pattern | None,
    principal: str | None = None,
    host: str | None = None,
    operation: Operation = Operation.ANY,
    permission: Permission = Permission.ANY,
) -> AclFilter:
    """Returns a filter; None, and ANY, match everything."""
    resource_type, pattern_type, name = pattern or (ResourceType.ANY, PatternType.ANY, None)
    return AclFilter(
        resource_type=resource_type,
        pattern_type=pattern_type,
        name=name,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )


def check_operation(resource_type: ResourceType, operation: Operation) -> None:
    """Raises UsageError if resources of this type have no such operation."""
    known = OPERATIONS_OF[resource_type]
    if operation is not Operation.ALL and operation not in known:
        raise click.UsageError(
            f"there is no operation {operation_name(operation)} for --{resource_name(resource_type)}; expected all, "
            + ", ".join(map(operation_name, known))
        )
