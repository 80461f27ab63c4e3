"""Kafka API 38, CreateDelegationToken (KIP-48)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bytes, Int16, Int32, Int64, String, field, request, response, struct


@struct
class CreatableRenewer:
    principal_type: String
    principal_name: String


@request(ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: String | None = field("3+", default=None)
    owner_principal_name: String | None = field("3+", default=None)
    renewers: Array[CreatableRenewer]
    max_lifetime_ms: Int64


@response(ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32
