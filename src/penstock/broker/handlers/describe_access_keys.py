"""DescribeAccessKeys: lists the access keys of users in the store, never their secrets. Penstock's own API."""

from collections.abc import Awaitable

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import make_answer, with_breaks
from penstock.cluster.access_keys import StoredKey
from penstock.foundation.acls import Operation
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_access_keys import (
    DescribeAccessKeysRequest,
    DescribeAccessKeysResponse,
    DescribedAccessKey,
)


@handles(ApiKey.DESCRIBE_ACCESS_KEYS, in_cluster(Operation.DESCRIBE))
def describe_access_keys(
    request: DescribeAccessKeysRequest, call: Call, broker: Broker
) -> DescribeAccessKeysResponse | Awaitable[DescribeAccessKeysResponse]:
    by_user = broker.image.access_keys
    found = list(by_user.values()) if request.user is None else [by_user.get(request.user, ())]
    return make_answer(broker, len(found), _describe(found, broker))


def _describe(found: list[tuple[StoredKey, ...]], broker: Broker) -> Steps[DescribeAccessKeysResponse]:
    described = []
    for of_user in with_breaks(found):
        if of_user is None:
            yield
        else:
            described += [_described(key, broker) for key in of_user]
    return DescribeAccessKeysResponse(keys=described)


def _described(key: StoredKey, broker: Broker) -> DescribedAccessKey:
    return DescribedAccessKey(
        access_key=key.access_key,
        user=key.user,
        owner=key.owner,
        actions=key.actions,
        queues=key.queues,
        subjects=key.subjects,
        created_ms=key.created_ms,
        is_enabled=key.is_enabled,
        is_usable=broker.stored_keys.is_usable(key),
    )
