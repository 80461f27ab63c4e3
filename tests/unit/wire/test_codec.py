"""Every kind of field, in a message of our own: some kinds are in no message yet."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import MalformedRequest
from penstock.wire.codec import decode, encode_bytes
from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    NIL_UUID,
    REQUESTS,
    Array,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    UInt16,
    UInt32,
    Uuid,
    field,
    request,
    struct,
)
from tests.examples import examples

from .plain_encoder import encode_plainly
from .values import full_sample, instances


@struct
class Leaf:
    number: Int16
    text: String | None = field(default=None)
    late: Int8 = field("1+", tag=0, default=7)


@struct
class Nothing:
    """Has no field at all before version 1."""

    late: Int32 = field("1+", default=0)


@request(ApiKey.ENVELOPE, versions="0-1", flexible="1+")
class Everything:
    flag: Bool
    tiny: Int8
    small: Int16
    unsigned_small: UInt16
    medium: Int32
    unsigned_medium: UInt32
    large: Int64
    real: Float64
    text: String
    blob: Bytes
    maybe_blob: Bytes | None
    batch: Records | None
    identity: Uuid
    leaf: Leaf
    maybe_leaf: Leaf | None
    flags: Array[Bool]
    unsigned: Array[UInt16]
    reals: Array[Float64]
    identities: Array[Uuid]
    texts: Array[String] | None
    blobs: Array[Bytes]
    leaves: Array[Leaf] | None
    nothings: Array[Nothing]
    after_arrays: Int32
    tagged_text: String | None = field("1+", tag=0, default="")
    tagged_array: Array[Int32] | None = field("1+", tag=1, default=None)
    tagged_empty: Array[Leaf] | None = field("1+", tag=2, default=())
    tagged_leaf: Leaf | None = field("1+", tag=3, default=None)
    tagged_identity: Uuid = field("1+", tag=4, default=NIL_UUID)
    tagged_number: Int64 = field("1+", tag=200, default=-1)


# The catalogue, and the tests of other packages, see real messages only.
REQUESTS.pop(ApiKey.ENVELOPE)

LEAF: Final = Leaf(number=1)


@pytest.mark.parametrize("version", [0, 1])
def test_every_kind_of_field_is_written_as_a_plain_encoder_writes_it(version: int) -> None:
    message = full_sample(Everything, version)
    data = encode_bytes(message, version)
    assert data == encode_plainly(message, version)
    assert decode(Everything, version, data) == message


@examples(60, deadline=None, database=None)
@given(st.sampled_from([0, 1]).flatmap(lambda v: st.tuples(st.just(v), instances(Everything, v))))
def test_every_kind_of_field_comes_back(drawn: tuple[int, Any]) -> None:
    version, message = drawn
    data = encode_bytes(message, version)
    assert data == encode_plainly(message, version)
    assert decode(Everything, version, data) == message


def least(**changes: Any) -> Everything:
    values: dict[str, Any] = {
        "flag": False,
        "tiny": 0,
        "small": 0,
        "unsigned_small": 0,
        "medium": 0,
        "unsigned_medium": 0,
        "large": 0,
        "real": 0.0,
        "text": "",
        "blob": b"",
        "maybe_blob": None,
        "batch": None,
        "identity": NIL_UUID,
        "leaf": LEAF,
        "maybe_leaf": None,
        "flags": [],
        "unsigned": [],
        "reals": [],
        "identities": [],
        "texts": None,
        "blobs": [],
        "leaves": None,
        "nothings": [],
        "after_arrays": 0,
    }
    return Everything(**values | changes)


def tail_of(message: Everything) -> str:
    """The bytes of a message in version 1 after the field `after_arrays`, which is all its tagged fields."""
    marked = encode_bytes(message, 1)
    return marked.rpartition(b"\x00\x00\x00\x2a")[2].hex()


@pytest.mark.parametrize(
    ("tagged", "data"),
    [
        ({}, "00"),
        ({"tagged_text": ""}, "00"),
        ({"tagged_text": "hi"}, "010003036869"),
        ({"tagged_text": None}, "01000100"),
        ({"tagged_array": None}, "00"),
        ({"tagged_array": []}, "01010101"),
        ({"tagged_array": [1]}, "0101050200000001"),
        ({"tagged_empty": []}, "00"),
        ({"tagged_empty": None}, "01020100"),
        ({"tagged_leaf": LEAF}, "0103050100010000"),
        ({"tagged_leaf": Leaf(number=1, late=8)}, "0103080100010001000108"),
        ({"tagged_number": 5}, "01c801080000000000000005"),
        ({"tagged_number": 5, "tagged_text": "hi"}, "020003036869c801080000000000000005"),
    ],
)
def test_tagged_fields_are_written_unless_they_have_their_default(tagged: dict[str, Any], data: str) -> None:
    message = least(after_arrays=42, **tagged)
    assert tail_of(message) == data
    assert decode(Everything, 1, encode_bytes(message, 1)) == message


@pytest.mark.parametrize("version", [0, 1])
def test_a_nullable_struct_follows_a_byte_that_marks_null(version: int) -> None:
    absent = encode_bytes(least(maybe_leaf=None), version)
    given_one = encode_bytes(least(maybe_leaf=LEAF), version)
    at = next(i for i, (a, b) in enumerate(zip(absent, given_one, strict=False)) if a != b)
    assert (absent[at], given_one[at]) == (0xFF, 0x01)
    # Kafka takes any negative byte for null.
    changed = absent[:at] + b"\x80" + absent[at + 1 :]
    assert decode(Everything, version, changed).maybe_leaf is None


def test_elements_that_take_no_bytes_cannot_outnumber_the_bytes_of_the_message() -> None:
    many = least(nothings=[Nothing()] * 3, after_arrays=42)
    data = encode_bytes(many, 0)
    assert decode(Everything, 0, data) == many
    count_and_rest = bytes.fromhex("000000030000002a")
    assert data.endswith(count_and_rest)
    with pytest.raises(MalformedRequest, match="nothings has 2147483647 elements"):
        decode(Everything, 0, data.removesuffix(count_and_rest) + bytes.fromhex("7fffffff0000002a"))
