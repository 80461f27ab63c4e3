"""Decides by ACLs what clients may do, as Kafka's StandardAuthorizer. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from penstock.foundation.acls import (
    IMPLIED_BY,
    OPERATIONS_OF,
    WILDCARD,
    Acl,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

DECISIONS_MAX: Final = 20_000
"""Number of remembered decisions at which all of them are forgotten."""
EVERY_USER: Final = "User:*"
_MAPPED: Final = "::ffff:"

Acls = Mapping[Pattern, tuple[Acl, ...]]
Decision = tuple[str, str, Operation, ResourceType, str]


class Authorizer:
    """Looks up ACLs. Remembers decisions until an ACL changes.

    A rule that denies is stronger than all that allow. Without a rule for the client, the operation is denied, unless
    there is no rule at all for the resource and `allow_if_none` is set.
    """

    def __init__(
        self, acls: Callable[[], Acls], super_users: Iterable[str] = (), *, allow_if_none: bool = False
    ) -> None:
        """`acls` returns the current ACLs: another mapping after every change. `super_users` may do everything."""
        self._current = acls
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_none
        self._acls: Acls = {}
        self._decisions: dict[Decision, bool] = {}
        self._of_types: dict[tuple[str, str, Operation, ResourceType], bool] = {}
        self._prefix_lengths: dict[ResourceType, list[int]] = {}
        self._patterns: dict[str, Pattern | list[Pattern]] | None = None
        """One or several patterns by principal that they have ACLs for; None until they are needed."""

    def allows(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        acls = self._current()
        if acls is not self._acls:
            self._acls = acls
            self._index()
        key = (principal, host, operation, resource_type, name)
        found = self._decisions.get(key)
        if found is None:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            found = self._decisions[key] = self._decide(*key)
        return found

    def allows_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is any resource of this type, existing or not, with which the client may do this."""
        acls = self._current()
        if acls is not self._acls:
            self._acls = acls
            self._index()
        key = (principal, host, operation, resource_type)
        found = self._of_types.get(key)
        if found is None:
            if len(self._of_types) >= DECISIONS_MAX:
                self._of_types.clear()
            found = self._of_types[key] = self._decide_for_type(*key)
        return found

    def operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """Returns the operations that a client may do with a resource as a bit field, as in responses of Kafka."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def _index(self) -> None:
        self._decisions.clear()
        self._of_types.clear()
        self._patterns = None
        lengths: dict[ResourceType, set[int]] = {}
        prefixed = PatternType.PREFIXED
        for resource_type, name in [(one[0], one[2]) for one in self._acls if one[1] is prefixed]:
            lengths.setdefault(resource_type, set()).add(len(name))
        self._prefix_lengths = {resource_type: sorted(found) for resource_type, found in lengths.items()}

    def _decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        has_acls = is_allowed = False
        for acls in self._acls_of(resource_type, name):
            has_acls = True
            for acl in acls:
                if decides(acl, principal, host, operation):
                    if acl.permission is Permission.DENY:
                        return False
                    is_allowed = True
        return is_allowed or (self._allow_if_none and not has_acls)

    def _acls_of(self, resource_type: ResourceType, name: str) -> Iterator[tuple[Acl, ...]]:
        """Yields the ACLs of every pattern that matches a resource."""
        patterns = [
            Pattern(resource_type, PatternType.LITERAL, name),
            *(
                Pattern(resource_type, PatternType.PREFIXED, name[:length])
                for length in self._prefix_lengths.get(resource_type, ())
                if length <= len(name)
            ),
        ]
        if name != WILDCARD:
            patterns.append(Pattern(resource_type, PatternType.LITERAL, WILDCARD))
        for pattern in patterns:
            found = self._acls.get(pattern)
            if found is not None:
                yield found

    def _decide_for_type(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        if principal in self._super_users:
            return True
        allowed: list[Pattern] = []
        denied: set[Pattern] = set()
        for pattern in self._patterns_for(principal, resource_type):
            for acl in self._acls[pattern]:
                if decides(acl, principal, host, operation):
                    if acl.permission is Permission.DENY:
                        denied.add(pattern)
                    else:
                        allowed.append(pattern)
        if Pattern(resource_type, PatternType.LITERAL, WILDCARD) in denied:
            return False
        return self._allow_if_none or any(not self._is_covered(pattern, denied) for pattern in allowed)

    def _patterns_for(self, principal: str, resource_type: ResourceType) -> Iterator[Pattern]:
        """Yields the patterns of a type that have ACLs for a principal, or for all."""
        if self._patterns is None:
            self._patterns = _by_principal(self._acls)
        for name in (principal, EVERY_USER):
            found = self._patterns.get(name, [])
            for pattern in found if isinstance(found, list) else [found]:
                if pattern.resource_type is resource_type:
                    yield pattern

    def _is_covered(self, pattern: Pattern, denied: set[Pattern]) -> bool:
        """Whether everything that `pattern` matches is denied, by the same pattern or by a prefix."""
        if pattern in denied or pattern.name == WILDCARD:
            return pattern in denied
        return any(
            Pattern(pattern.resource_type, PatternType.PREFIXED, pattern.name[:length]) in denied
            for length in self._prefix_lengths.get(pattern.resource_type, ())
            if length <= len(pattern.name)
        )


def _by_principal(acls: Acls) -> dict[str, Pattern | list[Pattern]]:
    """Returns patterns by principal. Most principals have few: a list is made only for the second pattern, because
    there may be 100,000 principals."""
    patterns: dict[str, Pattern | list[Pattern]] = {}
    for pattern, of_pattern in acls.items():
        for acl in of_pattern:
            principal = acl[0]
            found = patterns.get(principal)
            if found is None:
                patterns[principal] = pattern
            elif isinstance(found, list):
                if found[-1] is not pattern:
                    found.append(pattern)
            elif found is not pattern:
                patterns[principal] = [found, pattern]
    return patterns


def decides(acl: Acl, principal: str, host: str, operation: Operation) -> bool:
    """Whether an ACL allows or denies an operation to a client, if there were no other ACLs."""
    if not _concerns(acl, principal, host):
        return False
    if acl.permission is Permission.DENY:
        return acl.operation in (Operation.ALL, operation)
    return _allows(acl.operation, operation)


def _allows(allowed: Operation, operation: Operation) -> bool:
    """Whether the permission for one operation is a permission for the other."""
    return allowed in (Operation.ALL, operation) or allowed in IMPLIED_BY.get(operation, ())


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERY_USER) and (acl.host == WILDCARD or _is_host(acl.host, host))


@lru_cache(maxsize=10_000)
def _is_host(rule: str, host: str) -> bool:
    """Whether a host is that of a rule, or in its network. Hosts may be written as Java does, `/10.0.0.7`; clients of
    a socket for both versions of IP have mapped addresses."""
    host = host.removeprefix("/").lower().removeprefix(_MAPPED)
    if "/" not in rule:
        return rule == host or ip_address(rule) == _address(host)
    address, network = _address(host), ip_network(rule)
    return address is not None and address.version == network.version and address in network


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:  # a client whose connection has just been lost
        return None
