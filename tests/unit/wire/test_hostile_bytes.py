"""Invalid frames: a decoder returns or raises MalformedRequest, quickly and with little memory."""

import struct
import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from penstock.foundation.errors import MalformedRequest
from penstock.foundation.steps import run_steps
from penstock.wire.codec import ELEMENTS_INLINE_MAX, ELEMENTS_MAX, decode, decode_steps, encode_bytes
from penstock.wire.codegen import STEP_ELEMENTS, TooManyElements
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.schema import message_of
from penstock.wire.varint import TAGS_MAX, uvarint
from tests.scaling import refused_cpu_s

from .catalogue import MESSAGES, label
from .plain_encoder import encode_plainly
from .values import full_sample

SEED: Final = 20_260_115
LIES: Final = [
    bytes.fromhex(data)
    for data in (
        "ff",  # null, or the start of a long number
        "00",
        "80",
        "ffff",  # a length of -1, or of -2 and so on in what follows
        "8000",
        "7fffffff",  # the largest count
        "80000000",  # the most negative one
        "fffffffe",
        "ffffffff07",  # the same as variable-length integers
        "ffffffff0f",
        "ffffffffff",  # which never ends
        "c328",  # not UTF-8
    )
]

LONG_SAMPLE_BYTES: Final = 400

each_class = pytest.mark.parametrize("cls", MESSAGES, ids=label)


def samples(cls: type) -> Iterator[tuple[int, bytes]]:
    for version in message_of(cls).versions:
        yield version, encode_bytes(full_sample(cls, version), version)


def refuses(cls: type, version: int, data: bytes) -> bool:
    """Whether the bytes are refused. What is not refused makes a message that can be written and read."""
    try:
        found = decode(cls, version, data)
    except MalformedRequest:
        return True
    written = encode_bytes(found, version)
    assert encode_bytes(decode(cls, version, written), version) == written  # by bytes: a NaN does not equal itself
    return False


@each_class
def test_a_message_that_is_cut_short_anywhere_is_refused(cls: type) -> None:
    for version, data in samples(cls):
        for size in range(0, len(data), 1 + len(data) // 2000):
            with pytest.raises(MalformedRequest, match=cls.__name__):
                decode(cls, version, data[:size])


@each_class
def test_a_lie_at_any_place_is_refused_or_makes_a_message(cls: type) -> None:
    message = message_of(cls)
    # Where the encoding changes. A place gets every third lie, and others in the next version; fewer in responses,
    # which come from brokers, and in long samples, which repeat each structure.
    turning_points = {message.versions[0], message.flexible_from - 1, message.flexible_from, message.versions[-1]}
    step = 3 if message.is_request else 5
    outcomes = {
        refuses(cls, version, data[:at] + lie + data[at + len(lie) :])
        for version, data in samples(cls)
        if version in turning_points
        for at in range(len(data))
        for thinned in [step * (1 + len(data) // LONG_SAMPLE_BYTES)]
        for lie in LIES[(at + version) % thinned :: thinned]
    }
    assert outcomes == {True, False}


@each_class
def test_random_bytes_are_refused_or_make_a_message(cls: type) -> None:
    for version in message_of(cls).versions:
        seed = f"{SEED} {cls.__name__} {version}"
        random = Random(seed)
        outcomes = [refuses(cls, version, random.randbytes(random.randrange(48))) for _ in range(30)]
        # A message without a body is never refused, any other nearly always.
        assert any(outcomes) or encode_bytes(full_sample(cls, version), version) == b"", f"seed={seed!r}"


GIANT_COUNTS: Final = {
    "topics of a Metadata request": (MetadataRequest, 8, bytes.fromhex("7fffffff")),
    "topics of a flexible Metadata request": (MetadataRequest, 12, bytes.fromhex("ffffffff0f")),
    "names of a DeleteTopics request": (DeleteTopicsRequest, 5, bytes.fromhex("ffffffff07")),
    "the size of a transactional id": (ProduceRequest, 9, bytes.fromhex("ffffffff0f")),
    "tagged fields of an ApiVersions request": (ApiVersionsRequest, 3, bytes.fromhex("0101ffffffff0f")),
    "partitions to forget": (
        FetchRequest,
        7,
        bytes(25) + bytes.fromhex("00000000000000010001617fffffff"),
    ),
}


@pytest.mark.parametrize(("cls", "version", "start"), GIANT_COUNTS.values(), ids=GIANT_COUNTS.keys())
def test_a_giant_count_takes_neither_time_nor_memory(cls: type, version: int, start: bytes) -> None:
    data = start + bytes(1000)
    decode_or_none(cls, version, data)  # makes the decoder, whose own memory is not the frame's fault
    tracemalloc.start()
    took_s = refused_cpu_s(lambda: decode(cls, version, data), MalformedRequest)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    assert took_s < 1


def decode_or_none(cls: type, version: int, data: bytes) -> Any:
    try:
        return decode(cls, version, data)
    except MalformedRequest:
        return None


def test_a_megabyte_of_elements_that_fail_late_is_refused_soon() -> None:
    data = uvarint(2**31) + b"\x01\x00" * 2**19
    assert refused_cpu_s(lambda: decode(MetadataRequest, 9, data), MalformedRequest) < 5


def fetch_with_tags(tags: bytes) -> bytes:
    """A flexible Fetch request whose tagged fields, their count first, are these bytes."""
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    return encode_plainly(request, 12)[:-1] + tags


def test_a_tagged_field_that_is_longer_than_its_size_is_refused() -> None:
    assert decode(FetchRequest, 12, fetch_with_tags(b"\x01\x00\x03\x03ab")).cluster_id == "ab"
    with pytest.raises(MalformedRequest, match="tag 0 is longer than its size"):
        decode(FetchRequest, 12, fetch_with_tags(b"\x01\x00\x02\x03ab"))


def test_a_tagged_field_that_is_shorter_than_its_size_ends_where_its_size_says() -> None:
    data = fetch_with_tags(b"\x02\x00\x05\x03ab??" + b"\x09\x01!")
    assert decode(FetchRequest, 12, data).cluster_id == "ab"


def test_tags_that_each_read_the_rest_of_the_frame_are_refused_at_the_first() -> None:
    # Every two bytes say: field 0, of no bytes. As a string it would be most of the frame, again and again.
    size = 2**14
    tags = uvarint(TAGS_MAX) + (b"\x00\x00" + uvarint(size)) + b"\x00\x00" * TAGS_MAX + bytes(size)
    frame = fetch_with_tags(tags)
    with pytest.raises(MalformedRequest, match="longer than its size"):
        decode(FetchRequest, 12, frame)
    assert refused_cpu_s(lambda: decode(FetchRequest, 12, frame), MalformedRequest) < 1


@pytest.mark.parametrize("count", [TAGS_MAX + 1, 2**32 - 1])
def test_more_tagged_fields_than_a_newer_peer_would_send_are_refused(count: int) -> None:
    with pytest.raises(MalformedRequest, match=f"{count} tagged fields"):
        decode(FetchRequest, 12, fetch_with_tags(uvarint(count) + b"\x63\x00" * (TAGS_MAX + 1)))


def test_a_string_that_is_not_utf_8_is_refused() -> None:
    for text in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"x" * 200 + b"\xff"):
        data = uvarint(2) + uvarint(len(text) + 1) + text + b"\x00" + bytes(4)
        with pytest.raises(MalformedRequest, match="utf-8"):
            decode(MetadataRequest, 9, data)


@pytest.mark.parametrize("length", [-2, -32768])
def test_a_length_below_minus_one_is_refused_even_where_null_is_allowed(length: int) -> None:
    data = length.to_bytes(2, "big", signed=True) + bytes(20)
    with pytest.raises(MalformedRequest, match=f"transactional_id has length {length}"):
        decode(ProduceRequest, 3, data)


MANY: Final = 3 * ELEMENTS_MAX
TAGGED_NAME: Final = b"\1" + uvarint(1000) + b"\x63\0" * 1000
"""An empty name with a thousand unknown tagged fields."""


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        # A whole Produce request of empty topics: each is an empty name, no partitions and no tagged fields.
        (ProduceRequest, 9, b"\0" + b"\xff\xff" + bytes(4) + uvarint(MANY + 1) + b"\1\1\0" * MANY + b"\0"),
        (MetadataRequest, 4, struct.pack(">i", MANY) + bytes(2 * MANY) + b"\0"),
        # Few elements with many unknown tagged fields each.
        (MetadataRequest, 9, uvarint(MANY // 1000 + 1) + TAGGED_NAME * (MANY // 1000) + bytes(4)),
    ],
    ids=["empty topics", "empty names", "tagged fields"],
)
def test_more_elements_than_a_request_may_have_are_refused_before_they_cost_memory(
    cls: type, version: int, data: bytes
) -> None:
    with pytest.raises(TooManyElements):
        decode(cls, version, data, elements_max=ELEMENTS_INLINE_MAX)
    steps = decode_steps(cls, version, data)
    tracemalloc.start()
    with pytest.raises(MalformedRequest, match=f"more than {ELEMENTS_MAX} array elements"):
        run_steps(steps)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000


def test_a_string_is_not_longer_than_kafka_allows() -> None:
    names = [DeleteTopicState(name="x" * 0x7FFF, topic_id=bytes(16))]
    assert decode(DeleteTopicsRequest, 6, encode_plainly(DeleteTopicsRequest(topics=names, timeout_ms=0), 6))
    names[0] = DeleteTopicState(name="x" * 0x8000, topic_id=bytes(16))
    with pytest.raises(MalformedRequest, match="name has 32769 bytes"):
        decode(DeleteTopicsRequest, 6, encode_plainly(DeleteTopicsRequest(topics=names, timeout_ms=0), 6))


def test_a_sliced_decoder_yields_often() -> None:
    names = [f"topic-{number}" for number in range(10_000)]
    data = encode_bytes(DeleteTopicsRequest(topic_names=names, timeout_ms=0), 4)
    steps = decode_steps(DeleteTopicsRequest, 4, data)
    assert sum(1 for _ in steps) >= len(names) // STEP_ELEMENTS
