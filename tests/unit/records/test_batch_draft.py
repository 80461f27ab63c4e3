"""Rows distributed to partitions and built into batches, by both implementations."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.partitioner import partition_of_key
from penstock.foundation.errors import InvalidRecord, InvalidTimestamp
from penstock.records import kernel
from penstock.records.arrow import int_column, row_columns
from penstock.records.batch import read_client_batch
from penstock.records.batch_draft import BatchDraft
from penstock.records.build import Record, read_records
from penstock.records.compression import Codec
from tests.examples import examples

pytestmark = pytest.mark.usefixtures("twin")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NULLABLE = st.none() | st.binary(max_size=90)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": NULLABLE,
            "value": NULLABLE,
            "timestamp": st.integers(0, 2**50),
            "headers": st.none()
            | st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": NULLABLE}), max_size=3),
            "partition": st.none() | st.integers(0, 4),
        }
    ),
    min_size=1,
    max_size=40,
)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
        ("partition", pa.int32()),
    ]
)
PARTITIONS = 5


def arrow(rows: list[dict]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def as_record(row: dict, number: int) -> Record:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return Record(key=row["key"], value=row["value"], headers=headers, timestamp_ms=row["timestamp"], offset=number)


def place(row: dict, keyless: int) -> int:
    if row["partition"] is not None:
        return row["partition"]
    return keyless if row["key"] is None else partition_of_key(row["key"], PARTITIONS)


@examples(60, deadline=None)
@given(ROWS, st.integers(0, PARTITIONS - 1), st.integers(0, 5), st.booleans())
def test_rows_go_where_they_are_wanted_else_where_kafka_puts_their_key(
    rows: list[dict], keyless: int, cut: int, use_wanted: bool
) -> None:
    batch = arrow(rows)[cut:]  # a slice has offsets of its own in every column
    rows = [row if use_wanted else row | {"partition": None} for row in rows[cut:]]
    columns = row_columns(batch, timestamp_ms=7)
    wanted = int_column(batch.column("partition")) if use_wanted else None
    placed, ends = kernel.active.spread(len(batch), None, columns.key, wanted, PARTITIONS, keyless)
    found, start = {}, 0
    for number, end in enumerate(ends):
        found[number] = placed[start:end].tolist()
        start = end
    assert found == {
        number: [row for row in range(len(rows)) if place(rows[row], keyless) == number]
        for number in range(PARTITIONS)
    }


def test_only_the_rows_that_are_named_are_shared_out() -> None:
    columns = row_columns(arrow([dict.fromkeys(SCHEMA.names) for _ in range(6)]), timestamp_ms=7)
    chosen, _ = kernel.active.spread(6, None, columns.key, None, 1, 0)
    placed, ends = kernel.active.spread(0, chosen[1:4], columns.key, None, 3, 2)
    assert (placed.tolist(), ends.tolist()) == ([1, 2, 3], [0, 0, 3])


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1])
def test_a_partition_that_is_not_there_is_refused(wrong: int) -> None:
    wanted = int_column(pa.array([0, None, wrong], pa.int32()))
    with pytest.raises(InvalidRecord, match=f"asks for partition {wrong} of 3"):
        kernel.active.spread(3, None, None, wanted, 3, 0)


@examples(60, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4), st.sampled_from(Codec), st.integers(70, 2000), st.data())
def test_batches_built_in_pieces_have_all_rows(
    parts: list[list[dict]], codec: Codec, bytes_max: int, data: st.DataObject
) -> None:
    batches: list[bytearray] = []
    expected: list[dict] = []
    draft = BatchDraft()
    for rows in parts:
        columns = row_columns(arrow(rows), timestamp_ms=7)
        every, _ = kernel.active.spread(len(rows), None, None, None, 1, 0)
        order = data.draw(st.permutations(range(len(rows))))
        chosen = memoryview(pa.array([every[row] for row in order], pa.int32()).buffers()[1]).cast("i")[: len(rows)]
        expected += [rows[row] for row in order]
        start = 0
        while start < len(rows):
            start += draft.take(columns, chosen, start, len(rows), bytes_max)
            if start < len(rows):
                batches.append(draft.seal(codec=codec, producer_id=3, producer_epoch=1, base_sequence=0))
                draft = BatchDraft()
    batches.append(draft.seal(codec=codec, producer_id=3, producer_epoch=1, base_sequence=0, transactional=True))
    found: list[Record] = []
    for batch in batches:
        header = read_client_batch(batch)
        records = list(read_records(batch))
        assert header.codec is codec
        assert header.max_timestamp == max(record.timestamp_ms for record in records)
        assert codec is not Codec.NONE or len(batch) <= bytes_max or header.count == 1
        assert [record.offset for record in records] == list(range(len(records)))
        found += [
            Record(
                key=each.key, value=each.value, headers=each.headers, timestamp_ms=each.timestamp_ms, offset=number
            )
            for number, each in enumerate(records, len(found))
        ]
    assert read_client_batch(batches[-1]).is_transactional
    assert found == [as_record(row, number) for number, row in enumerate(expected)]


def test_a_record_larger_than_a_batch_makes_a_batch_alone() -> None:
    rows = arrow([{"value": bytes(size)} for size in (10, 5000, 10)])
    columns = row_columns(rows, timestamp_ms=7)
    every, _ = kernel.active.spread(3, None, None, None, 1, 0)
    draft = BatchDraft()
    assert draft.take(columns, every, 0, 3, 500) == 1
    draft = BatchDraft()
    assert draft.take(columns, every, 1, 3, 500) == 1
    assert draft.size_bytes > 5000
    assert draft.take(columns, every, 2, 3, 500) == 0


def test_without_a_time_of_its_own_a_record_has_that_of_its_batch() -> None:
    rows = pa.RecordBatch.from_pylist([{"value": b"a"}, {"value": b"b"}])
    columns = row_columns(rows, timestamp_ms=1_700_000_000_000)
    every, _ = kernel.active.spread(2, None, None, None, 1, 0)
    draft = BatchDraft()
    draft.take(columns, every, 0, 1, 500)
    draft.take(row_columns(rows, timestamp_ms=1_700_000_000_999), every, 1, 2, 500)
    assert {record.timestamp_ms for record in read_records(draft.seal())} == {1_700_000_000_000}


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC")), [1_700_000_000_123, 7]),
        (pa.array([1_700_000_000.5, None], pa.float64()), [1_700_000_000_500, 7]),
    ],
)
def test_times_are_read_in_every_form_that_spark_has(times: pa.Array, expected: list[int]) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), times], names=["value", "timestamp"])
    columns = row_columns(rows, timestamp_ms=7)
    assert [columns.timestamp(row) for row in range(2)] == expected


def test_a_time_before_1970_is_refused() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([-1.0])], names=["value", "timestamp"])
    with pytest.raises(InvalidTimestamp, match="-1000 ms, before 1970"):
        row_columns(rows, timestamp_ms=7)
