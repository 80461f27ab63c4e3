"""CreateAcls: adds ACLs; each gets its own result."""

from functools import partial

from penstock.broker.acl_requests import acl_of, log_changes, no_authorizer
from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.cluster.acl_changes import parts_of, plan_creation
from penstock.cluster.acls import check_acl
from penstock.foundation.acls import Acl, Operation, Pattern
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@handles(ApiKey.CREATE_ACLS)
async def create_acls(request: CreateAclsRequest, call: Call, broker: Broker) -> CreateAclsResponse:
    wanted: dict[Pattern, list[Acl]] = {}
    results: list[Pattern | PenstockError] = []
    for creation in request.creations:
        try:
            no_authorizer(broker)
            call.check_cluster(Operation.ALTER)
            pattern, acl = acl_of(creation)
            check_acl(pattern, acl)
        except PenstockError as error:
            results.append(error)
        else:
            wanted.setdefault(pattern, []).append(acl)
            results.append(pattern)
    failed = await _add(broker, wanted, call.principal)
    return CreateAclsResponse(throttle_time_ms=0, results=[_result(each, failed) for each in results])


async def _add(broker: Broker, wanted: dict[Pattern, list[Acl]], principal: str) -> dict[Pattern, PenstockError]:
    """Adds the ACLs that are possible; returns the errors of the others by pattern."""
    failed: dict[Pattern, PenstockError] = {}
    for part in list(parts_of(broker.image, wanted)):
        some = {pattern: wanted[pattern] for pattern in part}
        failed_here: dict[Pattern, PenstockError] = {}
        await broker.metadata.change(partial(plan_creation, wanted=some, failed=failed_here))
        failed |= failed_here
        added = [(pattern, acl) for pattern in some.keys() - failed_here.keys() for acl in some[pattern]]
        log_changes("acl_created", added, principal)
    return failed


def _result(result: Pattern | PenstockError, failed: dict[Pattern, PenstockError]) -> AclCreationResult:
    error = result if isinstance(result, PenstockError) else failed.get(result)
    if error is None:
        return AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
    return AclCreationResult(error_code=error.code, error_message=error.message)
