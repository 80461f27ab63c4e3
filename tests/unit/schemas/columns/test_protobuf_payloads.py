"""Protobuf payloads become columns: against Google's library, with any payload, and compiled as in pure Python."""

from random import Random
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from penstock.schemas.columns import kernel
from penstock.schemas.columns.codec import NoColumnType
from penstock.schemas.columns.protobuf.codec import protobuf_decoder
from tests.examples import examples

from .conftest import NOT_BUILT
from .protobuf_lab import FIRST, HEADER, column_values, expected, fill, message_class, payloads, random_schema

SEEDS = st.integers(0, 2**32)


@examples(300)
@given(SEEDS)
def test_messages_become_the_values_that_googles_library_reads(twin: kernel.Kernel, seed: int) -> None:
    random = Random(seed)
    schema = random_schema(random)
    message_type = message_class(schema)
    messages = [message_type() for _ in range(5)]
    for each in messages:
        fill(random, each)
    try:
        decoder = protobuf_decoder(schema, schema, None)
    except NoColumnType:
        assert expected(messages[0]) == {}
        return
    encoded = [each.SerializeToString() for each in messages]
    values, bad = decoder.decode(payloads(*encoded, None), len(HEADER))
    values.validate(full=True)
    assert bad == {}
    assert values.type == decoder.type
    assert column_values(values) == [*map(expected, messages), None]


@examples(300)
@given(SEEDS)
def test_the_parts_of_a_message_are_merged_as_in_googles_library(twin: kernel.Kernel, seed: int) -> None:
    random = Random(seed)
    schema = random_schema(random)
    message_type = message_class(schema)
    parts = []
    for _ in range(3):
        part = message_type()
        fill(random, part, 0.4)
        parts.append(part.SerializeToString())
    encoded = b"".join(parts)
    message = message_type.FromString(encoded)
    try:
        decoder = protobuf_decoder(schema, schema, None)
    except NoColumnType:
        return
    values, bad = decoder.decode(payloads(encoded), len(HEADER))
    assert bad == {}
    assert column_values(values) == [expected(message)]


@examples(300)
@given(SEEDS)
def test_damaged_messages_are_decoded_as_by_googles_library_or_are_bad(twin: kernel.Kernel, seed: int) -> None:
    random = Random(seed)
    # Google's library for Python accepts any bytes as strings of proto2, and drops entries of maps that have unknown
    # fields. Enums of proto2 are treated as in Java.
    schema = random_schema(random, is_proto2=False, has_maps=False)
    try:
        decoder = protobuf_decoder(schema, schema, None)
    except NoColumnType:
        return
    message = message_class(schema)()
    fill(random, message)
    damaged = [damage(random, message.SerializeToString()) for _ in range(20)]
    values, bad = decoder.decode(payloads(*damaged), len(HEADER))
    values.validate(full=True)
    for place, (encoded, value) in enumerate(zip(damaged, column_values(values), strict=True)):
        try:
            message.ParseFromString(encoded)
        except DecodeError:
            message = type(message)()
            assert place in bad or has_alternatives(message.DESCRIPTOR), encoded
        else:
            # It also accepts field number 0 in groups.
            is_fussy = "microseconds" in bad.get(place, "") or "field number" in bad.get(place, "")
            assert place not in bad or is_fussy, encoded
            assert place in bad or value == expected(message), encoded


def has_alternatives(descriptor: Any) -> bool:
    """Whether it may hold messages that we do not read: others of a oneof follow them, or they have no columns."""
    messages = [field.message_type for field in descriptor.fields if field.message_type is not None]
    return (
        any(each.name == "Empty" for each in messages)
        or any(field.containing_oneof is not None and field.message_type is not None for field in descriptor.fields)
        or any(map(has_alternatives, messages))
    )


def damage(random: Random, data: bytes) -> bytes:
    out = bytearray(data or b"\0")
    for _ in range(random.choice([1, 1, 2, 5])):
        at = random.randrange(len(out))
        match random.randrange(5):
            case 0:
                out[at] = random.choice([0, 1, 0x0B, 0x0C, 0x7F, 0x80, 0xFF, random.randrange(256)])
            case 1:
                out[at:at] = random.randbytes(random.choice([1, 2, 11]))
            case 2:
                del out[at : at + random.choice([1, 1, 5])]
            case 3:
                out[at:at] = random.choice(
                    [b"\xff" * 9 + b"\x01", b"\xff" * 11, b"\x5b\x08\x01\x5c", b"\xff\xff\xff\xff\x0f"]
                )
            case 4:
                del out[at:]
        out = out or bytearray(b"\0")
    return bytes(out)


@NOT_BUILT
@examples(300)
@given(SEEDS)
def test_compiled_and_pure_decoders_agree_on_any_payload(seed: int) -> None:
    random = Random(seed)
    schema = random_schema(random)
    try:
        decoder = protobuf_decoder(schema, schema, None)
    except NoColumnType:
        return
    message = message_class(schema)()
    fill(random, message, 0.8)
    good = message.SerializeToString()
    rows = [HEADER + FIRST + (good if random.random() < 0.3 else damage(random, good)) for _ in range(20)]
    rows += [damage(random, rows[0]), HEADER, b""]
    column = pa.array([None, *rows, None], pa.binary()).slice(random.randrange(3))
    found = []
    before = kernel.active
    try:
        for each in (kernel.PURE, kernel.COMPILED):
            assert each is not None
            kernel.active = each
            found.append(decoder.decode(column, len(HEADER)))
    finally:
        kernel.active = before
    assert found[0].bad == found[1].bad
    assert column_values(found[0].values) == column_values(found[1].values)
