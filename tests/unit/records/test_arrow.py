import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import InvalidRecord
from penstock.records.arrow import from_arrow, to_arrow
from penstock.records.batch import patch_log_append_time, read_client_batch, read_header
from penstock.records.build import Record, build_batch, control_marker, read_records
from penstock.records.compression import Codec
from tests.examples import examples

pytestmark = pytest.mark.usefixtures("twin")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NULLABLE = st.none() | st.binary(max_size=90)
RECORDS = st.lists(
    st.builds(
        Record,
        key=NULLABLE,
        value=NULLABLE,
        headers=st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=3).map(tuple),
        timestamp_ms=st.integers(0, 2**50),
    ),
    min_size=1,
    max_size=12,
)


def row(record: Record) -> dict[str, object]:
    return {
        "key": record.key,
        "value": record.value,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": 0,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
    }


def numbered(count: int, base_offset: int = 0) -> list[Record]:
    return [
        Record(key=b"%d" % n, value=b"v", timestamp_ms=n, offset=base_offset + n, headers=(("n", b"%d" % n),))
        for n in range(count)
    ]


@examples(50, deadline=None)
@given(st.lists(st.tuples(RECORDS, st.sampled_from(Codec)), max_size=4))
def test_batches_become_one_arrow_batch(parts: list[tuple[list[Record], Codec]]) -> None:
    batches, rows, offset = [], [], 10
    for records, codec in parts:
        batches.append(build_batch(records, base_offset=offset, codec=codec))
        rows += [row(record) for record in read_records(batches[-1])]
        offset += len(records)
    table = to_arrow(batches, include_headers=True)
    table.validate(full=True)
    assert table.to_pylist() == rows


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("offset", pa.int64()),
            ("timestamp", pa.int64()),
            ("timestamp_type", pa.int32()),
            ("headers", HEADERS),
        ]
    )
    assert to_arrow([], include_headers=True).schema == schema
    assert to_arrow([], include_headers=False).schema == schema.remove(5)
    assert to_arrow([build_batch(numbered(2))], include_headers=True).schema == schema


@pytest.mark.parametrize(("start", "end"), [(0, 30), (12, 18), (13, 25), (9, 11), (15, 15), (30, 40), (0, 5)])
def test_records_outside_of_the_offsets_asked_for_are_left_out(start: int, end: int) -> None:
    batches = [build_batch(numbered(8), base_offset=10), build_batch(numbered(8), base_offset=20, codec=Codec.ZSTD)]
    table = to_arrow(batches, include_headers=True, start_offset=start, end_offset=end)
    table.validate(full=True)
    wanted = [offset for offset in (*range(10, 18), *range(20, 28)) if start <= offset < end]
    assert table.column("offset").to_pylist() == wanted
    assert table.column("key").to_pylist() == [b"%d" % (offset % 10) for offset in wanted]
    assert [entries[0]["value"] for entries in table.column("headers").to_pylist()] == [
        b"%d" % (offset % 10) for offset in wanted
    ]


def test_control_batches_are_left_out() -> None:
    marker = control_marker(
        commit=True, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp_ms=0, base_offset=2
    )
    batches = [build_batch(numbered(2)), marker, build_batch(numbered(1), base_offset=3)]
    assert to_arrow(batches).column("offset").to_pylist() == [0, 1, 3]


def test_log_append_time_shows_in_the_timestamp_type() -> None:
    batch = build_batch(numbered(2))
    patch_log_append_time(batch, 0, 99)
    table = to_arrow([build_batch(numbered(1)), batch])
    assert table.column("timestamp_type").to_pylist() == [0, 1, 1]
    assert table.column("timestamp").to_pylist() == [0, 99, 99]


def test_header_names_that_are_not_utf8_do_not_stop_a_reader() -> None:
    batch = bytes(build_batch([Record(key=None, value=None, timestamp_ms=0, headers=(("name", b"v"),))]))
    table = to_arrow([batch.replace(b"name", b"n\xff\xfee")], include_headers=True)
    table.validate(full=True)
    assert table.column("headers").to_pylist() == [[{"key": "n��e", "value": b"v"}]]


@examples(50, deadline=None)
@given(RECORDS, st.sampled_from(Codec), st.data())
def test_an_arrow_batch_becomes_the_batch_it_came_from(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    table = to_arrow([build_batch(records, base_offset=5)], include_headers=True)
    assert from_arrow(table, codec=codec) == build_batch(records, codec=codec)
    start = data.draw(st.integers(0, len(records) - 1))
    end = data.draw(st.integers(start + 1, len(records)))
    expected = build_batch(records[start:end], codec=codec)
    assert from_arrow(table, start=start, end=end, codec=codec) == expected
    assert from_arrow(table.slice(start, end - start), codec=codec) == expected


def test_rows_are_written_for_a_producer() -> None:
    table = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
    batch = from_arrow(table, producer_id=5, producer_epoch=1, base_sequence=7, transactional=True, timestamp_ms=9)
    header = read_header(batch)
    assert read_client_batch(batch) == header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 7)
    assert header.is_transactional
    assert [(r.key, r.value, r.timestamp_ms) for r in read_records(batch)] == [(None, b"a", 9), (None, b"b", 9)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary(), pa.binary_view()])
def test_keys_and_values_may_be_text_or_bytes_of_any_width(kind: pa.DataType) -> None:
    cells = pa.array([b"one", None, b""], pa.binary()).cast(kind)
    table = pa.RecordBatch.from_arrays([cells, cells], names=["key", "value"]).slice(1)
    assert [(r.key, r.value) for r in read_records(from_arrow(table))] == [(None, None), (b"", b"")]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_arrow_timestamps_become_milliseconds_and_nulls_the_time_given(unit: str) -> None:
    times = pa.array([1_700_000_000_123, None], pa.timestamp("ms", "UTC")).cast(pa.timestamp(unit, "UTC"))
    table = pa.RecordBatch.from_pydict({"value": ["a", "b"], "timestamp": times})
    assert [r.timestamp_ms for r in read_records(from_arrow(table, timestamp_ms=42))] == [1_700_000_000_123, 42]


def test_headers_may_be_null_or_sliced() -> None:
    headers = pa.array([[("a", b"1")], None, [("b", None), ("c", b"3")]], HEADERS)
    table = pa.RecordBatch.from_arrays([pa.nulls(3), headers], names=["value", "headers"])
    assert [r.headers for r in read_records(from_arrow(table.slice(1)))] == [(), (("b", None), ("c", b"3"))]
    nothing = pa.RecordBatch.from_arrays([pa.nulls(1), pa.nulls(1)], names=["value", "headers"])
    assert read_records(from_arrow(nothing))[0].headers == ()


@pytest.mark.parametrize("entry", [None, {"key": None, "value": b"v"}])
def test_a_header_that_is_null_or_has_no_name_is_refused(entry: object) -> None:
    table = pa.RecordBatch.from_arrays([pa.nulls(1), pa.array([[entry]], HEADERS)], names=["value", "headers"])
    with pytest.raises(InvalidRecord, match="row 0 has a header without a name"):
        from_arrow(table)


def test_no_rows_are_no_batch() -> None:
    with pytest.raises(ValueError, match="rows 0 to 0"):
        from_arrow(pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())}))
