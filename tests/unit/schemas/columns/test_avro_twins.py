"""The compiled loops and the pure ones agree on every payload and every column, also on damaged ones."""

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from penstock.schemas.columns import kernel
from penstock.schemas.columns.avro.decoder import AvroDecoder, avro_decoder
from penstock.schemas.columns.avro.encoder import avro_encoder
from penstock.schemas.columns.codec import CannotEncode, Decoded, IncompatibleTypes
from tests.examples import examples
from tests.unit.schemas.avro.schema_strategies import changed, data, encode, records
from tests.unit.schemas.columns.avro_values import parsed, schemas, values

pytestmark = pytest.mark.skipif(kernel.COMPILED is None, reason="the extension is not built")

EDGES = [0x00, 0x01, 0x02, 0x03, 0x04, 0x7F, 0x80, 0xBF, 0xC2, 0xE0, 0xFE, 0xFF]


@st.composite
def damaged(draw: st.DrawFn, payload: bytes) -> bytes:
    """The payload with some bytes changed, inserted or removed."""
    found = bytearray(payload)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(found)))
        change = draw(st.sampled_from(["set", "insert", "remove", "end", "insert many"]))
        if change == "end":
            del found[at:]
        elif change == "remove":
            del found[at : at + 1]
        elif change == "set":
            found[at : at + 1] = bytes([draw(st.sampled_from(EDGES))])
        else:
            size = 1 if change == "insert" else draw(st.integers(2, 12))
            found[at:at] = bytes([draw(st.sampled_from(EDGES))]) * size
    return bytes(found)


def with_both(decoder: AvroDecoder, rows: list[bytes | None], header_bytes: int = 0) -> Decoded:
    """Decodes with both twins, which must agree; returns the result."""
    column = pa.array(rows, pa.binary())
    results = []
    for twin in (kernel.COMPILED, kernel.PURE):
        assert twin is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "active", twin)
            results.append(decoder.decode(column, header_bytes))
    compiled, pure = results
    for result in results:
        result.values.validate(full=True)
    assert compiled.bad == pure.bad
    assert list(compiled.bad) == list(pure.bad)
    assert _buffers(compiled.values) == _buffers(pure.values)
    is_null = compiled.values.is_null().to_pylist()
    assert all(is_null[row] and rows[row] is not None for row in compiled.bad)
    return compiled


def _buffers(column: pa.Array) -> list[bytes | None]:
    """The memory of a column, in which NaNs are equal to themselves."""
    return [None if buffer is None else buffer.to_pybytes() for buffer in column.buffers()]


@examples(500)
@given(st.data())
def test_the_twins_agree_on_damaged_payloads(drawn: st.DataObject) -> None:
    schema = drawn.draw(schemas())
    rows: list[bytes | None] = []
    for row in drawn.draw(st.lists(values(schema), min_size=1, max_size=3)):
        payload = encode(schema, row)
        rows += [payload, drawn.draw(damaged(payload)), drawn.draw(damaged(payload))]
    decoded = with_both(avro_decoder(parsed(schema), parsed(schema)), [*rows, None])
    event(f"bad rows: {len(decoded.bad)}")
    assert not {0, 3, 6} & decoded.bad.keys()


@examples(300)
@given(records().flatmap(lambda schema: st.tuples(st.just(schema), changed(schema))), st.data())
def test_the_twins_agree_on_payloads_that_are_resolved(pair: tuple[Any, Any], drawn: st.DataObject) -> None:
    writer, reader = pair
    try:
        decoder = avro_decoder(parsed(writer), parsed(reader))
    except IncompatibleTypes:
        event("refused")
        return
    rows = [encode(writer, row) for row in data(writer)]
    with_both(decoder, [*rows, *(drawn.draw(damaged(row)) for row in rows)])


@examples(300)
@given(schemas(), st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.integers(0, 6))
def test_the_twins_agree_on_noise(schema: Any, rows: list[bytes | None], header_bytes: int) -> None:
    with_both(avro_decoder(parsed(schema), parsed(schema)), rows, header_bytes)


@examples(200)
@given(st.data())
def test_the_twins_encode_the_same_payloads(drawn: st.DataObject) -> None:
    schema = drawn.draw(schemas())
    rows = [encode(schema, row) for row in drawn.draw(st.lists(values(schema), max_size=4))]
    column = avro_decoder(parsed(schema), parsed(schema)).decode(pa.array(rows, pa.binary()), 0).values
    other = drawn.draw(st.sampled_from([schema, _stricter(schema)]))
    encoder = avro_encoder(parsed(other))
    results: list[Any] = []
    for twin in (kernel.COMPILED, kernel.PURE):
        assert twin is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "active", twin)
            try:
                results.append(encoder.encode(column, b"\x00").to_pylist())
            except CannotEncode as error:
                results.append((error.row, error.message))
    assert results[0] == results[1]


def _stricter(schema: Any) -> Any:
    """The schema with fewer symbols in enums, and without null in unions with one other type."""
    if isinstance(schema, list):
        rest = [_stricter(branch) for branch in schema if branch != "null"]
        return rest if len(rest) == 1 else [_stricter(branch) for branch in schema]
    if isinstance(schema, str):
        return schema
    schema = dict(schema)
    for key in ("items", "values"):
        if key in schema:
            schema[key] = _stricter(schema[key])
    if "fields" in schema:
        schema["fields"] = [{**field, "type": _stricter(field["type"])} for field in schema["fields"]]
    if "symbols" in schema:
        schema = {**schema, "symbols": schema["symbols"][:1]}
        schema.pop("default", None)
    return schema


def test_the_twins_agree_on_many_rows(rng: random.Random) -> None:
    """Enough rows that every buffer grows several times."""
    schema = {
        "type": "record",
        "name": "Top",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "names", "type": {"type": "array", "items": ["null", "string"]}},
            {"name": "flags", "type": {"type": "map", "values": "boolean"}},
            {"name": "either", "type": ["int", "double", "bytes"]},
        ],
    }
    rows: list[bytes | None] = []
    for number in range(2000):
        value = {
            "id": rng.getrandbits(63),
            "names": [
                (1, "n" * rng.randrange(50)) if rng.random() < 0.7 else (0, None) for _ in range(rng.randrange(9))
            ],
            "flags": {str(key): rng.random() < 0.5 for key in range(rng.randrange(20))},
            "either": rng.choice([(0, 7), (1, 0.5), (2, bytes(rng.randrange(60)))]),
        }
        payload = encode(schema, value)
        if number % 7 == 0:
            payload = payload[: rng.randrange(len(payload))]
        rows.append(None if number % 11 == 0 else payload)
    decoded = with_both(avro_decoder(parsed(schema), parsed(schema)), rows)
    assert decoded.bad


@examples(100)
@given(st.data())
def test_memory_is_bounded_by_the_size_of_the_payloads(drawn: st.DataObject) -> None:
    """No matter how many items a payload claims to have."""
    item = drawn.draw(st.sampled_from(["null", "int", {"type": "fixed", "name": "F", "size": 0}, "string"]))
    schema = {"type": "array", "items": {"type": "array", "items": item}}
    count = encode("long", drawn.draw(st.integers(-(2**63), 2**63 - 1) | st.integers(-2000, 2000)))
    rows: list[bytes | None] = [count * drawn.draw(st.integers(1, 20)) + bytes(30) for _ in range(3)]
    before = pa.total_allocated_bytes()
    decoded = with_both(avro_decoder(parsed(schema), parsed(schema)), rows)
    assert pa.total_allocated_bytes() == before  # the columns are not in Arrow's own memory
    assert decoded.values.nbytes < 100_000
