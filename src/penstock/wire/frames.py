"""Request and response frames: a four-byte length, a header, a message; for brokers and clients."""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.foundation.errors import MalformedRequest
from penstock.foundation.steps import Steps
from penstock.wire.codec import codec_of, decode, encode_steps
from penstock.wire.encoders import UNBOUNDED, Encoder
from penstock.wire.keys import ApiKey
from penstock.wire.schema import RESPONSES, Buffer, carries_records, message_of
from penstock.wire.varint import read_uvarint, skip_tagged_fields

LENGTH: Final = struct.Struct(">i")
_REQUEST_START: Final = struct.Struct(">hhih")
HEADER_BYTES_MIN: Final = _REQUEST_START.size
_RESPONSE_START: Final = struct.Struct(">ii")
_RESPONSE_START_FLEXIBLE: Final = struct.Struct(">iix")  # an empty tagged field section


class RequestHeader(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int
    """Position after the client id: of the body, or of the header's tagged fields in a flexible request."""


# Faster than NamedTuple's own constructor, a Python function that does the same.
_new_header: Callable[[tuple[int, int, int, str | None, int]], RequestHeader]
_new_header = partial(tuple.__new__, RequestHeader)


def read_request_header(frame: Buffer) -> RequestHeader:
    """Decodes the header of a request frame (given without its length). The client id is never a compact string."""
    try:
        api_key, version, correlation_id, size = _REQUEST_START.unpack_from(frame, 0)
        if size < 0:
            return _new_header((api_key, version, correlation_id, None, HEADER_BYTES_MIN))
        end = HEADER_BYTES_MIN + size
        client_id = str(frame[HEADER_BYTES_MIN:end], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRequest(f"the request header cannot be decoded: {error}") from error
    if end > len(frame):
        raise MalformedRequest(f"the client id ends {end - len(frame)} bytes after its frame")
    return _new_header((api_key, version, correlation_id, client_id, end))


def skip_tags(frame: Buffer, at: int) -> int:
    """Returns the position after a request header's tagged fields; ignores their content."""
    try:
        if frame[at] == 0:
            return at + 1
        count, at = read_uvarint(frame, at)
        at = skip_tagged_fields(frame, at, count)
    except (IndexError, ValueError) as error:
        raise MalformedRequest(f"the header's tagged fields cannot be decoded: {error}") from error
    if at > len(frame):
        raise MalformedRequest(f"the header's tagged fields end {at - len(frame)} bytes after their frame")
    return at


def response_header_is_flexible(key: ApiKey, flexible: bool) -> bool:
    # ApiVersions responses have the old header in every version, so that any client can read them (KIP-511).
    return flexible and key is not ApiKey.API_VERSIONS


class _ResponseShape(NamedTuple):
    """The encoder and frame layout of a response class and version."""

    encoder: Encoder
    start: struct.Struct
    in_parts: bool


_response_shapes: Final[dict[tuple[type, int], _ResponseShape]] = {}


def _response_shape(cls: type, version: int) -> _ResponseShape:
    message = message_of(cls)
    flexible = response_header_is_flexible(message.key, version >= message.flexible_from)
    start = _RESPONSE_START_FLEXIBLE if flexible else _RESPONSE_START
    shape = _ResponseShape(codec_of(cls, version)[1], start, carries_records(cls))
    _response_shapes[cls, version] = shape
    return shape


def response_frame(response: Any, version: int, correlation_id: int, elements_max: int = UNBOUNDED) -> list[Buffer]:
    """Returns a whole response frame, length first, as byte parts: one part, unless it contains record batches.

    Raises TooManyElements if the response has more array elements than `elements_max`.
    """
    key = type(response), version
    encoder, start, in_parts = _response_shapes.get(key) or _response_shape(*key)
    parts: list[Buffer] = []
    encoder(response, parts, elements_max)
    if in_parts:
        size = sum(map(len, parts))
        parts.insert(0, start.pack(start.size - 4 + size, correlation_id))
        return parts
    body = b"".join(parts)
    return [start.pack(start.size - 4 + len(body), correlation_id) + body]


def response_frame_steps(response: Any, version: int, correlation_id: int) -> Steps[list[Buffer]]:
    """Like `response_frame`, but a generator that yields regularly, so that other tasks can run."""
    _, start, in_parts = _response_shape(type(response), version)
    parts: list[Buffer] = []
    joined: list[Buffer] = []
    for _ in encode_steps(response, version, parts):
        if not in_parts:
            joined.append(b"".join(parts))
            parts.clear()
        yield
    joined += parts
    size = sum(map(len, joined))
    return [start.pack(start.size - 4 + size, correlation_id), *joined]


def request_frame(request: Any, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
    """Returns a whole request frame, length first, as byte parts in order."""
    message = message_of(type(request))
    name = client_id.encode()
    parts: list[Buffer] = [b"", name]
    if version >= message.flexible_from:
        parts.append(b"\0")
    codec_of(type(request), version)[1](request, parts, UNBOUNDED)
    start = _REQUEST_START.pack(message.key, version, correlation_id, len(name))
    parts[0] = LENGTH.pack(len(start) + sum(map(len, parts))) + start
    return parts


def read_response(key: ApiKey, version: int, frame: Buffer) -> tuple[int, Any]:
    """Decodes a response frame (given without its length); returns the correlation id and the response."""
    response_class = RESPONSES[key]
    if len(frame) < 4:
        raise MalformedRequest(f"a response of {len(frame)} bytes has no header")
    (correlation_id,) = LENGTH.unpack_from(frame, 0)
    at = 4
    if response_header_is_flexible(key, version >= message_of(response_class).flexible_from):
        at = skip_tags(frame, at)
    return correlation_id, decode(response_class, version, frame, at)
