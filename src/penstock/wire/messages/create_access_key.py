"""Penstock's API 30050, CreateAccessKey: creates an access key of a user, and returns its secret."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, Int64, String, field, request, response


@request(ApiKey.CREATE_ACCESS_KEY, versions="0", flexible="0+")
class CreateAccessKeyRequest:
    user: String
    owner: String = field(default="")
    """The account whose queues the key uses; empty for the default account."""
    actions: Array[String] | None = field(default=None)
    """Patterns of allowed actions; null for all. The same for queues and subjects."""
    queues: Array[String] | None = field(default=None)
    subjects: Array[String] | None = field(default=None)


@response(ApiKey.CREATE_ACCESS_KEY, versions="0", flexible="0+")
class CreateAccessKeyResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    access_key: String = field(default="")
    secret: String = field(default="")
    """The secret, which no other request returns."""
    owner: String = field(default="")
    created_ms: Int64 = field(default=-1)
