"""Kafka API 41, DescribeDelegationToken (KIP-48)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bytes, Int16, Int32, Int64, String, field, request, response, struct


@struct
class DescribedTokenOwner:
    principal_type: String
    principal_name: String


@request(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: Array[DescribedTokenOwner] | None


@struct
class DescribedTokenRenewer:
    principal_type: String
    principal_name: String


@struct
class DescribedToken:
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: String
    hmac: Bytes
    renewers: Array[DescribedTokenRenewer]


@response(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: Int16
    tokens: Array[DescribedToken]
    throttle_time_ms: Int32
