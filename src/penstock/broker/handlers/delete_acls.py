"""DeleteAcls: deletes the ACLs that match filters; returns for each filter what it has deleted."""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.broker.acl_requests import filter_of, log_changes, no_authorizer
from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import with_breaks
from penstock.cluster.acl_changes import ACLS_MAX, parts_of, plan_deletion
from penstock.cluster.acls import NAME_CHARS_MAX
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import Op
from penstock.foundation.acls import WILDCARD, Acl, AclFilter, Operation, Pattern, PatternType, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError, PolicyViolation
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

MATCHES_MAX: Final = ACLS_MAX
"""Maximum number of results of a request: an ACL is one for each filter that it matches."""
STEP: Final = 2000
"""Number of comparisons between two pauses."""

Matches = dict[Pattern, list[tuple[int, list[Acl]]]]
"""By pattern: numbers of filters, and the ACLs that they match."""


@handles(ApiKey.DELETE_ACLS)
async def delete_acls(request: DeleteAclsRequest, call: Call, broker: Broker) -> DeleteAclsResponse:
    deleted: list[list[tuple[Pattern, Acl]]] = [[] for _ in request.filters]
    failed: dict[int, PenstockError] = {}
    try:
        no_authorizer(broker)
        call.check_cluster(Operation.ALTER)
        filters = _parse(request, failed)
        matches = await broker.slices.run(_find(broker.image, filters))
    except PenstockError as error:
        return DeleteAclsResponse(throttle_time_ms=0, filter_results=[_refused(error)] * len(request.filters))
    await _delete(broker, matches, deleted, call.principal)
    return await broker.slices.run(_answer(deleted, failed))


def _parse(request: DeleteAclsRequest, failed: dict[int, PenstockError]) -> dict[int, AclFilter]:
    """Returns the valid filters by their number in the request. Adds the errors of the others to `failed`."""
    filters = {}
    for number, wanted in enumerate(request.filters):
        try:
            filters[number] = filter_of(wanted)
        except PenstockError as error:
            failed[number] = error
    return filters


def _find(image: ClusterImage, filters: dict[int, AclFilter]) -> Steps[Matches]:
    """Returns what the filters match. Raises PolicyViolation if that is too much."""
    matches: Matches = {}
    work = found = 0
    for number, each in filters.items():
        for pattern in _candidates(image, each):
            acls = image.acls.get(pattern, ())
            work += 1 + len(acls)
            if acls and each.matches_pattern(pattern):
                matching = [acl for acl in acls if each.matches(acl)]
                if matching:
                    matches.setdefault(pattern, []).append((number, matching))
                    found += len(matching)
            if found > MATCHES_MAX:
                raise PolicyViolation(f"the filters match more than {MATCHES_MAX:,} ACLs; send fewer at a time")
            if work >= STEP:
                work = 0
                yield
    return matches


def _candidates(image: ClusterImage, wanted: AclFilter) -> Iterable[Pattern]:
    """Returns the patterns that a filter could match: all that there are, or all that a name could match."""
    name = wanted.name
    if name is None:
        return image.acls
    kinds = [(PatternType.LITERAL, name), (PatternType.PREFIXED, name)]
    if wanted.pattern_type is PatternType.MATCH:
        kinds.append((PatternType.LITERAL, WILDCARD))
        kinds += [(PatternType.PREFIXED, name[:length]) for length in range(min(len(name), NAME_CHARS_MAX + 1))]
    types = ResourceType if wanted.resource_type is ResourceType.ANY else (wanted.resource_type,)
    return (Pattern(resource_type, *kind) for kind in dict.fromkeys(kinds) for resource_type in types)


async def _delete(
    broker: Broker, matches: Matches, deleted: Sequence[list[tuple[Pattern, Acl]]], principal: str
) -> None:
    """Deletes the ACLs, some patterns at a time. Adds those that were still there to the lists of their filters."""
    for part in parts_of(broker.image, dict.fromkeys(matches, ())):
        wanted = {pattern: {acl for _, acls in matches[pattern] for acl in acls} for pattern in part}
        gone: dict[Pattern, set[Acl]] = {}

        def plan(
            image: ClusterImage, wanted: dict[Pattern, set[Acl]] = wanted, gone: dict[Pattern, set[Acl]] = gone
        ) -> list[Op]:
            return plan_deletion(image, wanted, gone)

        await broker.metadata.change(plan)
        for pattern, acls in gone.items():
            for number, matching in matches[pattern]:
                deleted[number] += [(pattern, acl) for acl in matching if acl in acls]
        log_changes("acl_deleted", [(pattern, acl) for pattern, acls in gone.items() for acl in acls], principal)


def _answer(
    deleted: Sequence[list[tuple[Pattern, Acl]]], failed: dict[int, PenstockError]
) -> Steps[DeleteAclsResponse]:
    results = []
    for number, found in enumerate(deleted):
        if number in failed:
            results.append(_refused(failed[number]))
            continue
        matching = []
        for each in with_breaks(found):
            if each is None:
                yield
            else:
                matching.append(_matching(*each))
        results.append(DeleteAclsFilterResult(error_code=ErrorCode.NONE, error_message=None, matching_acls=matching))
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def _refused(error: PenstockError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.message, matching_acls=())


def _matching(pattern: Pattern, acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
