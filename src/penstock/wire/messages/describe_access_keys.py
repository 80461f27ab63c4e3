"""Penstock's API 30052, DescribeAccessKeys: lists the access keys of a user, or of all, without their secrets."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int16, Int32, Int64, String, field, request, response, struct


@request(ApiKey.DESCRIBE_ACCESS_KEYS, versions="0", flexible="0+")
class DescribeAccessKeysRequest:
    user: String | None = field(default=None)
    """Only the keys of this user; null for all."""


@struct
class DescribedAccessKey:
    access_key: String
    user: String
    owner: String
    actions: Array[String]
    queues: Array[String]
    subjects: Array[String]
    created_ms: Int64
    is_enabled: Bool
    is_usable: Bool
    """Whether the broker that answers has the key with which the secret is encrypted."""


@response(ApiKey.DESCRIBE_ACCESS_KEYS, versions="0", flexible="0+")
class DescribeAccessKeysResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    keys: Array[DescribedAccessKey] = field(default=())
