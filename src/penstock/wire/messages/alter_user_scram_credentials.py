"""Kafka API 51, AlterUserScramCredentials (KIP-554)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bytes, Int8, Int16, Int32, String, request, response, struct


@struct
class ScramCredentialDeletion:
    name: String
    mechanism: Int8


@struct
class ScramCredentialUpsertion:
    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


@request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: Array[ScramCredentialDeletion]
    upsertions: Array[ScramCredentialUpsertion]


@struct
class AlterUserScramCredentialsResult:
    user: String
    error_code: Int16
    error_message: String | None


@response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32
    results: Array[AlterUserScramCredentialsResult]
