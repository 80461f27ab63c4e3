"""DescribeUserScramCredentials: reports that no user has SCRAM credentials, as SCRAM is not supported."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramUserResult,
)


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, call: Call, broker: Broker
) -> DescribeUserScramCredentialsResponse:
    results = [
        ScramUserResult(
            user=user.name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user.name}",
            credential_infos=[],
        )
        for user in request.users or ()
    ]
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, results=results
    )
