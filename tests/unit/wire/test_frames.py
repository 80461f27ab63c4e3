"""Frames: their headers against kio's, and invalid headers."""

import io
from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as OldRequestHeader
from kio.schema.request_header.v2.header import RequestHeader as FlexibleRequestHeader
from kio.schema.response_header.v0.header import ResponseHeader as OldResponseHeader
from kio.schema.response_header.v1.header import ResponseHeader as FlexibleResponseHeader
from kio.serial import entity_writer

from penstock.foundation.errors import MalformedRequest
from penstock.wire.codec import decode, encode_bytes
from penstock.wire.frames import read_request_header, read_response, request_frame, response_frame, skip_tags
from penstock.wire.keys import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsResponse
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.wire.schema import message_of
from tests.scaling import refused_cpu_s

from .catalogue import MESSAGES, REQUEST_CLASSES, is_flexible, label
from .plain_encoder import varint
from .values import full_sample

RESPONSE_CLASSES = [cls for cls in MESSAGES if cls not in REQUEST_CLASSES]


def kio_bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def framed(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("cls", REQUEST_CLASSES, ids=label)
def test_a_request_frame_is_a_length_a_header_as_kio_writes_it_and_the_message(cls: type) -> None:
    for version in message_of(cls).versions:
        message = full_sample(cls, version)
        header_class = FlexibleRequestHeader if is_flexible(cls, version) else OldRequestHeader
        header = header_class(
            request_api_key=int(message_of(cls).key),
            request_api_version=version,
            correlation_id=77,
            client_id="a client",
        )
        wanted = framed(kio_bytes(header), encode_bytes(message, version))
        assert b"".join(request_frame(message, version, 77, "a client")) == wanted


@pytest.mark.parametrize("cls", REQUEST_CLASSES, ids=label)
def test_a_request_frame_is_read_back(cls: type) -> None:
    for version in message_of(cls).versions:
        message = full_sample(cls, version)
        frame = b"".join(request_frame(message, version, -5, "ü"))[4:]
        header = read_request_header(frame)
        assert header[:4] == (message_of(cls).key, version, -5, "ü")
        at = skip_tags(frame, header.body_at) if is_flexible(cls, version) else header.body_at
        assert decode(cls, version, frame, at) == message


@pytest.mark.parametrize("cls", RESPONSE_CLASSES, ids=label)
def test_a_response_frame_is_a_length_a_header_as_kio_writes_it_and_the_message(cls: type) -> None:
    for version in message_of(cls).versions:
        message = full_sample(cls, version)
        is_old = cls is ApiVersionsResponse or not is_flexible(cls, version)
        header = (OldResponseHeader if is_old else FlexibleResponseHeader)(correlation_id=77)
        wanted = framed(kio_bytes(header), encode_bytes(message, version))
        assert b"".join(response_frame(message, version, 77)) == wanted


@pytest.mark.parametrize("cls", RESPONSE_CLASSES, ids=label)
def test_a_response_frame_is_read_back(cls: type) -> None:
    for version in message_of(cls).versions:
        message = full_sample(cls, version)
        frame = b"".join(response_frame(message, version, -5))[4:]
        assert read_response(message_of(cls).key, version, frame) == (-5, message)


def test_a_response_is_one_part_unless_it_carries_records_which_are_not_copied() -> None:
    assert len(response_frame(ApiVersionsResponse(error_code=0, api_keys=[]), 3, 1)) == 1
    batch = memoryview(b"a record batch")
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=batch
    )
    topic = FetchableTopicResponse(topic="orders", partitions=[partition])
    parts = response_frame(FetchResponse(throttle_time_ms=0, responses=[topic]), 12, 1)
    assert any(part is batch for part in parts)


def request_header(client_id: bytes = b"\x00\x02me", tags: bytes = b"") -> bytes:
    return b"\x00\x12" + b"\x00\x03" + b"\x00\x00\x00\x07" + client_id + tags


def test_a_client_may_have_no_id() -> None:
    header = read_request_header(request_header(b"\xff\xff"))
    assert (header.client_id, header.body_at) == (None, 10)


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    tags = varint(3) + varint(0) + varint(1) + b"x" + varint(5) + varint(0) + varint(900) + varint(200)
    frame = request_header(tags=tags + bytes(200) + b"body")
    at = skip_tags(frame, read_request_header(frame).body_at)
    assert frame[at:] == b"body"


def test_unknown_tagged_fields_of_a_response_header_are_skipped() -> None:
    message = FetchResponse(throttle_time_ms=9, responses=[])
    frame = b"\x00\x00\x00\x07" + b"\x01\x63\x02??" + encode_bytes(message, 12)
    assert read_response(ApiKey.FETCH, 12, frame) == (7, message)


def test_a_request_header_that_is_cut_short_anywhere_is_refused() -> None:
    frame = request_header()
    assert read_request_header(frame).client_id == "me"
    for size in range(len(frame)):
        with pytest.raises(MalformedRequest):
            read_request_header(frame[:size])


def test_a_client_id_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="utf-8"):
        read_request_header(request_header(b"\x00\x01\xff"))


def test_tagged_fields_of_a_header_that_are_cut_short_anywhere_are_refused() -> None:
    tags = varint(2) + varint(0) + varint(3) + b"abc" + varint(300) + varint(1) + b"d"
    assert skip_tags(tags, 0) == len(tags)
    for size in range(len(tags)):
        with pytest.raises(MalformedRequest):
            skip_tags(tags[:size], 0)


@pytest.mark.parametrize(
    "tags",
    [
        varint(2**32 - 1) + b"\x00\x00" * 2**20,  # a giant count, and a megabyte that goes some of the way
        varint(2**32 - 1),
        varint(1) + varint(0) + varint(2**32 - 1),  # a field that ends far after the frame
        varint(1000) + (varint(0) + varint(2**32 - 1)) * 1000,
        b"\xff" * 6,
    ],
    ids=["giant count", "count alone", "past the end", "past the end again and again", "endless number"],
)
def test_tagged_fields_of_a_header_that_lie_are_refused_soon(tags: bytes) -> None:
    assert refused_cpu_s(lambda: skip_tags(tags, 0), MalformedRequest) < 0.5


@pytest.mark.parametrize("size", range(5))
def test_a_response_too_short_for_its_header_is_refused(size: int) -> None:
    with pytest.raises(MalformedRequest):
        read_response(ApiKey.FETCH, 12, bytes(size))
