"""ACLs of a cluster: lists, creates and deletes them. Errors are returned for each ACL or filter."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import STALE, TRANSIENT, ServerError, refusal
from penstock.foundation.acls import Acl, AclFilter, Operation, Pattern, PatternType, Permission, ResourceType
from penstock.foundation.authorizer_settings import AUTHORIZER, STANDARD_AUTHORIZER, SUPER_USERS
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

AT_ONCE: Final = 1000
"""Maximum number of ACLs or filters in one request; well below the request size limit of a broker."""
_NO_AUTHORIZER: Final = (
    f"the brokers have no authorizer; set {AUTHORIZER}={STANDARD_AUTHORIZER} and {SUPER_USERS} for all of them, and "
    "restart them"
)
_NOT_ALLOWED: Final = (
    f"log in as one of the brokers' {SUPER_USERS} (--command-config), or as a user with the permission for alter on "
    "the cluster (to list ACLs: describe)"
)

T = TypeVar("T")


class AclBinding(NamedTuple):
    """An ACL with the pattern of the resources that it is about."""

    pattern: Pattern
    acl: Acl


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The result of a filter: the ACLs that were deleted, and the errors of those that were not."""

    deleted: Sequence[AclBinding]
    failures: Sequence[ServerError]


class Acls:
    """Administration of ACLs over the Kafka protocol."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def find(self, wanted: AclFilter) -> list[AclBinding]:
        """Returns the ACLs that match a filter, sorted. Raises ServerError."""
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )

        async def attempt() -> list[AclBinding]:
            response: DescribeAclsResponse = await self._client.request(Target.ANY, request)
            if response.error_code != ErrorCode.NONE:
                raise _refusal(response.error_code, "the ACLs", response.error_message)
            return sorted(
                _binding(
                    (resource.resource_type, resource.pattern_type, resource.resource_name),
                    (acl.principal, acl.host, acl.operation, acl.permission_type),
                )
                for resource in response.resources
                for acl in resource.acls
            )

        return await self._client.retrying(attempt)

    async def create(self, bindings: Iterable[AclBinding]) -> dict[AclBinding, ServerError]:
        """Creates ACLs; those that exist stay as they are. Returns the errors of those that were not created."""
        failures: dict[AclBinding, ServerError] = {}
        for some in _portions(bindings):
            results = await self._create(some)
            failures |= {
                binding: _refusal(result.error_code, describe(binding), result.error_message)
                for binding, result in zip(some, results, strict=True)
                if result.error_code != ErrorCode.NONE
            }
        return failures

    async def _create(self, bindings: Sequence[AclBinding]) -> Sequence[AclCreationResult]:
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    resource_pattern_type=pattern.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for pattern, acl in bindings
            ]
        )

        async def attempt() -> Sequence[AclCreationResult]:
            response: CreateAclsResponse = await self._client.request(Target.CONTROLLER, request)
            # To create the others once more does no harm.
            _raise_retriable(response.results)
            return response.results

        return await self._client.retrying(attempt)

    async def delete(self, filters: Iterable[AclFilter]) -> list[Deletion]:
        """Deletes the ACLs that match any of the filters; returns the result of each filter, in order."""
        return [_deletion(result) for some in _portions(filters) for result in await self._delete(some)]

    async def _delete(self, filters: Sequence[AclFilter]) -> Sequence[DeleteAclsFilterResult]:
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=each.resource_type,
                    resource_name_filter=each.name,
                    pattern_type_filter=each.pattern_type,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in filters
            ]
        )

        async def attempt() -> Sequence[DeleteAclsFilterResult]:
            response: DeleteAclsResponse = await self._client.request(Target.CONTROLLER, request)
            if not any(result.matching_acls for result in response.filter_results):
                _raise_retriable(response.filter_results)
            return response.filter_results

        # After a lost connection, a second attempt would not find what the first one has deleted.
        return await self._client.retrying(attempt, retry_lost=False)


def describe(binding: AclBinding) -> str:
    """Returns an ACL in words, for error messages.

    >>> topic = Pattern(ResourceType.TOPIC, PatternType.PREFIXED, "ord")
    >>> describe(AclBinding(topic, Acl("User:ann", "*", Operation.READ, Permission.ALLOW)))
    "ALLOW READ on the prefixed TOPIC 'ord' for User:ann from *"
    """
    pattern, acl = binding
    prefixed = "prefixed " if pattern.pattern_type is PatternType.PREFIXED else ""
    return (
        f"{acl.permission.name} {acl.operation.name} on the {prefixed}{pattern.resource_type.name} {pattern.name!r} "
        f"for {acl.principal} from {acl.host}"
    )


def _binding(pattern: tuple[int, int, str], acl: tuple[str, str, int, int]) -> AclBinding:
    """Returns an ACL of a response. Raises ServerError if this version does not know one of its numbers: an ACL that
    is not shown would mislead."""
    (resource_type, pattern_type, name), (principal, host, operation, permission) = pattern, acl
    try:
        return AclBinding(
            Pattern(ResourceType(resource_type), PatternType(pattern_type), name),
            Acl(principal, host, Operation(operation), Permission(permission)),
        )
    except ValueError as error:
        raise refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            name,
            f"the cluster has an ACL for {name!r} that this version does not understand ({error}); use a newer one",
        ) from error


def _deletion(result: DeleteAclsFilterResult) -> Deletion:
    if result.error_code != ErrorCode.NONE:
        return Deletion(deleted=(), failures=[_refusal(result.error_code, "the ACLs", result.error_message)])
    deleted: list[AclBinding] = []
    failures: list[ServerError] = []
    for acl in result.matching_acls:
        binding = _binding(
            (acl.resource_type, acl.pattern_type, acl.resource_name),
            (acl.principal, acl.host, acl.operation, acl.permission_type),
        )
        if acl.error_code == ErrorCode.NONE:
            deleted.append(binding)
        else:
            failures.append(_refusal(acl.error_code, describe(binding), acl.error_message))
    return Deletion(deleted=deleted, failures=failures)


def _raise_retriable(results: Iterable[AclCreationResult | DeleteAclsFilterResult]) -> None:
    """Raises the first error after which the same request may succeed later."""
    for result in results:
        if result.error_code in STALE | TRANSIENT:
            raise refusal(result.error_code, "the ACLs", result.error_message)


def _refusal(code: int, what: str, said: str | None) -> ServerError:
    """Returns the error of a response, with what to do about it."""
    if code == ErrorCode.SECURITY_DISABLED:
        return refusal(code, what, _NO_AUTHORIZER)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return refusal(code, what, f"{(said or 'access is denied').rstrip('.')}; {_NOT_ALLOWED}")
    return refusal(code, what, said)


def _portions(values: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Yields the values in tuples of at most AT_ONCE, for one request each."""
    left = iter(values)
    while portion := tuple(islice(left, AT_ONCE)):
        yield portion
