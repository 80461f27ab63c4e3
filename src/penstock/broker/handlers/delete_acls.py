"""DeleteAcls: deletes the ACLs that match filters; returns for each filter what it has deleted."""

import logging
from collections.abc import Sequence

from penstock.broker.acl_requests import filter_of, no_authorizer
from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import with_breaks
from penstock.cluster.acl_changes import Found, parts_of, plan_deletion
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import Op
from penstock.foundation.acls import Acl, AclFilter, Operation, Pattern
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

logger = logging.getLogger(__name__)


@handles(ApiKey.DELETE_ACLS)
async def delete_acls(request: DeleteAclsRequest, call: Call, broker: Broker) -> DeleteAclsResponse:
    filters: list[AclFilter] = []
    results: list[int | PenstockError] = []
    for wanted in request.filters:
        try:
            no_authorizer(broker)
            call.check_cluster(Operation.ALTER)
            filters.append(filter_of(wanted))
        except PenstockError as error:
            results.append(error)
        else:
            results.append(len(filters) - 1)
    deleted = await _delete(broker, filters, call.principal)
    return DeleteAclsResponse(
        throttle_time_ms=0,
        filter_results=[
            _refused(each) if isinstance(each, PenstockError) else _result(deleted[each]) for each in results
        ],
    )


async def _delete(broker: Broker, filters: Sequence[AclFilter], principal: str) -> list[Found]:
    """Deletes the matching ACLs, some patterns at a time; returns by filter which ones were deleted."""
    deleted: list[Found] = [[] for _ in filters]
    patterns = await broker.slices.run(_matching(broker.image, filters))
    for part in list(parts_of(broker.image, dict.fromkeys(patterns, ()))):
        found: list[Found] = []

        def plan(image: ClusterImage, part: Sequence[Pattern] = part, found: list[Found] = found) -> list[Op]:
            ops, found[:] = plan_deletion(image, filters, part)
            return ops

        await broker.metadata.change(plan)
        for of_filter, more in zip(deleted, found, strict=True):
            of_filter += more
        for pattern, acl in dict.fromkeys(each for of_filter in found for each in of_filter):
            logger.info("acl_deleted pattern=%r acl=%r by=%r", tuple(pattern), tuple(acl), principal)
    return deleted


def _matching(image: ClusterImage, filters: Sequence[AclFilter]) -> Steps[list[Pattern]]:
    patterns = []
    for pattern in with_breaks(image.acls):
        if pattern is None:
            yield
        elif any(each.matches_pattern(pattern) for each in filters):
            patterns.append(pattern)
    return patterns


def _refused(error: PenstockError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.message, matching_acls=())


def _result(found: Sequence[tuple[Pattern, Acl]]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
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
            for pattern, acl in found
        ],
    )
