"""Our codec reads back what it writes in every version, and raises for fields that a version lacks."""

from collections.abc import Callable, Iterator
from functools import partial
from operator import is_
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import MalformedRequest
from penstock.foundation.steps import run_steps
from penstock.wire.codec import codec_of, decode, decode_steps, encode, encode_bytes, encode_steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.schema import Buffer, Field, fields_of, message_of
from tests.examples import examples

from .catalogue import MESSAGES, is_flexible, label
from .plain_encoder import encode_plainly
from .values import build, full_sample, instances, present

FROM_THE_FUTURE: Final = {100: b"a tagged field that we do not know", 300: b"", 70_000: bytes(200)}

each_class = pytest.mark.parametrize("cls", MESSAGES, ids=label)


def versions_of(cls: type) -> range:
    return message_of(cls).versions


def any_version(cls: type) -> st.SearchStrategy[tuple[int, Any]]:
    versions = st.sampled_from(versions_of(cls))
    return versions.flatmap(lambda version: st.tuples(st.just(version), instances(cls, version)))


@each_class
def test_messages_are_read_back_and_encoded_as_by_the_plain_encoder(cls: type) -> None:
    @examples(25, deadline=None, database=None)
    @given(any_version(cls))
    def check(drawn: tuple[int, Any]) -> None:
        version, message = drawn
        data = encode_bytes(message, version)
        assert decode(cls, version, data) == message
        assert data == encode_plainly(message, version)

    check()


@each_class
def test_unknown_tagged_fields_are_skipped_everywhere(cls: type) -> None:
    flexible = [version for version in versions_of(cls) if is_flexible(cls, version)]
    never = (ApiKey.OFFSET_DELETE, ApiKey.SASL_HANDSHAKE)
    assert flexible or message_of(cls).key in never, "the only APIs that never became flexible"
    for version in flexible:
        message = full_sample(cls, version)
        data = encode_plainly(message, version, FROM_THE_FUTURE)
        assert data.count(FROM_THE_FUTURE[100]) == count_structs(message, version)
        assert decode(cls, version, data) == message


def count_structs(value: Any, version: int) -> int:
    total = 1
    for field in present(type(value), version):
        if field.struct is not None:
            found = getattr(value, field.name)
            total += sum(count_structs(item, version) for item in (found if field.is_array else [found]))
    return total


@each_class
def test_sliced_codecs_agree_with_the_others(cls: type) -> None:
    for version in versions_of(cls):
        message = full_sample(cls, version)
        data = encode_bytes(message, version)
        assert run_steps(decode_steps(cls, version, data)) == message
        parts: list[Buffer] = []
        run_steps(encode_steps(message, version, parts))
        assert b"".join(parts) == data


@each_class
def test_bytes_after_the_message_are_left_alone(cls: type) -> None:
    for version in versions_of(cls):
        message = full_sample(cls, version)
        assert decode(cls, version, encode_bytes(message, version) + b"more") == message


def with_nulls(cls: type, version: int, choose: Callable[[Field], bool]) -> tuple[Any, Any]:
    """A sample with null in the chosen fields, and the same with their empty values; all arrays of one."""

    def one(field: Field) -> tuple[Any, Any]:
        if field.struct is not None:
            return with_nulls(field.struct, version, choose)
        value = {"string": "x", "uuid": bytes(16)}.get(field.kind, 1 if field.kind in _NUMBERS else b"x")
        return value, value

    def pair(field: Field) -> tuple[Any, Any]:
        if choose(field):
            return None, [] if field.is_array else "" if field.kind == "string" else b""
        if field.tag is not None:
            return field.initial, field.initial
        nulled, emptied = one(field.element() if field.is_array else field)
        return ([nulled], [emptied]) if field.is_array else (nulled, emptied)

    pairs = {field.name: pair(field) for field in present(cls, version)}
    return (
        build(cls, version, lambda field: pairs[field.name][0]),
        build(cls, version, lambda field: pairs[field.name][1]),
    )


_NUMBERS: Final = {"bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64"}


@each_class
def test_null_becomes_empty_in_a_version_that_cannot_say_null(cls: type) -> None:
    for version in versions_of(cls):
        nulled, emptied = with_nulls(cls, version, partial(is_null_elsewhere, version))
        assert encode_bytes(nulled, version) == encode_bytes(emptied, version)
        assert decode(cls, version, encode_bytes(nulled, version)) == emptied


def is_null_elsewhere(version: int, field: Field) -> bool:
    return field.ever_null and field.tag is None and not field.may_be_null(version)


def nullable_looking(cls: type, version: int) -> Iterator[Field]:
    """Fields, at any depth, that have a length and may not be null."""
    for field in present(cls, version):
        if field.tag is None and not field.may_be_null(version):
            if field.is_array or field.kind in ("string", "bytes", "records"):
                yield field
            if field.struct is not None:
                yield from nullable_looking(field.struct, version)


@each_class
def test_a_null_that_the_version_does_not_allow_is_refused(cls: type) -> None:
    for version in versions_of(cls):
        for forbidden in nullable_looking(cls, version):
            nulled, _ = with_nulls(cls, version, partial(is_, forbidden))
            with pytest.raises(MalformedRequest, match=f"{forbidden.name} must not be null"):
                decode(cls, version, encode_plainly(nulled, version))


def test_fields_that_a_version_does_not_have_get_their_defaults() -> None:
    old = FetchRequest(
        max_wait_ms=1, min_bytes=2, session_id=3, session_epoch=4, topics=[], rack_id="r1", cluster_id="c1"
    )
    found = decode(FetchRequest, 4, encode_bytes(old, 4))
    assert (found.session_id, found.session_epoch, found.rack_id) == (0, -1, "")
    assert (found.cluster_id, found.replica_state, found.forgotten_topics_data) == (None, None, ())
    assert (found.max_wait_ms, found.min_bytes) == (1, 2)


def test_all_topics_is_null_from_metadata_1_on_and_an_empty_list_before() -> None:
    everything = MetadataRequest(topics=None)
    assert encode_bytes(everything, 0) == bytes(4)
    assert encode_bytes(everything, 1) == b"\xff\xff\xff\xff"
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None


@pytest.mark.parametrize("version", [3, 13])
def test_record_batches_are_passed_on_without_a_copy(version: int) -> None:
    batch = bytearray(b"a record batch")
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(partition_data=[partition])])
    parts = encode(request, version)
    assert any(part is batch for part in parts)

    frame = bytearray(b"".join(parts))
    found = decode(ProduceRequest, version, frame).topic_data[0].partition_data[0].records
    assert found == batch
    frame[frame.index(batch)] = ord("A")
    assert bytes(found or b"") == b"A record batch"


@each_class
def test_a_version_that_a_message_does_not_have_is_named_in_the_error(cls: type) -> None:
    versions = versions_of(cls)
    for version in (versions[0] - 1, versions[-1] + 1, 32767):
        with pytest.raises(ValueError, match=rf"{cls.__name__} has versions .* asked for {version}"):
            codec_of(cls, version)
        with pytest.raises(MalformedRequest, match=f"asked for {version}"):
            decode(cls, version, bytes(1000))


def test_the_constructor_asks_for_fields_without_a_default() -> None:
    for cls in MESSAGES:
        required = [field.name for field in fields_of(cls) if field.required]
        if required:
            with pytest.raises(TypeError, match=required[0]):
                cls()
