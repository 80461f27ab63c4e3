"""Kafka API 50, DescribeUserScramCredentials (KIP-554)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, String, request, response, struct


@struct
class ScramUserName:
    name: String


@request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: Array[ScramUserName] | None


@struct
class ScramCredentialInfo:
    mechanism: Int8
    iterations: Int32


@struct
class ScramUserResult:
    user: String
    error_code: Int16
    error_message: String | None
    credential_infos: Array[ScramCredentialInfo]


@response(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: Array[ScramUserResult]
