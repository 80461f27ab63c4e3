"""DescribeAcls: lists the ACLs that match a filter, by resource pattern."""

from collections.abc import Awaitable

from penstock.broker.acl_requests import filter_of, no_authorizer
from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import make_answer, with_breaks
from penstock.foundation.acls import AclFilter, Operation
from penstock.foundation.errors import PenstockError
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@handles(ApiKey.DESCRIBE_ACLS, in_cluster(Operation.DESCRIBE))
def describe_acls(
    request: DescribeAclsRequest, call: Call, broker: Broker
) -> DescribeAclsResponse | Awaitable[DescribeAclsResponse]:
    try:
        no_authorizer(broker)
        wanted = filter_of(request)
    except PenstockError as error:
        return DescribeAclsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, resources=[]
        )
    return make_answer(broker, len(broker.image.acls), _describe(wanted, broker))


def _describe(wanted: AclFilter, broker: Broker) -> Steps[DescribeAclsResponse]:
    resources = []
    for found in with_breaks(broker.image.acls.items()):
        if found is None:
            yield
            continue
        pattern, acls = found
        matching = [acl for acl in acls if wanted.matches(acl)] if wanted.matches_pattern(pattern) else ()
        if matching:
            resources.append(
                DescribeAclsResource(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=[
                        AclDescription(
                            principal=acl.principal,
                            host=acl.host,
                            operation=acl.operation,
                            permission_type=acl.permission,
                        )
                        for acl in matching
                    ],
                )
            )
    return DescribeAclsResponse(throttle_time_ms=0, error_code=0, error_message=None, resources=resources)
