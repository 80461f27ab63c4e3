"""Penstock's API 30030, RegistryCall: forwards a request to the schema registry to the broker that leads it."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Bytes, Int16, String, field, request, response


@request(ApiKey.REGISTRY_CALL, versions="0", flexible="0+")
class RegistryCallRequest:
    method: String
    path: String
    """The path below `/registry`, as the client sent it."""
    query: String
    body: Bytes
    access_key: String
    """The access key that the client has proved to have; empty if the broker asks for none."""


@response(ApiKey.REGISTRY_CALL, versions="0", flexible="0+")
class RegistryCallResponse:
    error_code: Int16 = field(default=0)
    """Set if the broker does not lead the registry, or cannot answer now: the request was not executed."""
    error_message: String | None = field(default=None)
    status: Int16 = field(default=0)
    """The HTTP status of the response."""
    content_type: String = field(default="")
    body: Bytes = field(default=b"")
