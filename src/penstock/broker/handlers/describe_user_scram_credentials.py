"""DescribeUserScramCredentials (KIP-554): lists the mechanisms and iterations of users, never salts or keys."""

from collections import Counter

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.cluster.users import User
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialInfo,
    ScramUserResult,
)


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, in_cluster(Operation.DESCRIBE))
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, call: Call, broker: Broker
) -> DescribeUserScramCredentialsResponse:
    users = broker.image.users
    counts = Counter(user.name for user in request.users or ())
    results = (
        [_describe(users[name]) for name in sorted(users)]
        if not counts
        else [_named(name, users.get(name), count) for name, count in counts.items()]
    )
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, results=results
    )


def _named(name: str, user: User | None, count: int) -> ScramUserResult:
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _refused(name, ErrorCode.DUPLICATE_RESOURCE, message)
    if user is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    return _describe(user)


def _refused(name: str, code: ErrorCode, message: str) -> ScramUserResult:
    return ScramUserResult(user=name, error_code=code, error_message=message, credential_infos=())


def _describe(user: User) -> ScramUserResult:
    return ScramUserResult(
        user=user.name,
        error_code=ErrorCode.NONE,
        error_message=None,
        credential_infos=[
            ScramCredentialInfo(mechanism=mechanism, iterations=user.scram[mechanism].iterations)
            for mechanism in sorted(user.scram)
        ],
    )
