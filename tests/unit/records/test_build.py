import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import CorruptMessage, InvalidRecord
from penstock.records.batch import check_batch, read_client_batch, read_header
from penstock.records.build import Record, build_batch, build_pairs, control_marker, read_records, skip_marker
from penstock.records.compression import Codec
from penstock.records.layout import TRANSACTIONAL
from tests.examples import examples

NULLABLE = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.builds(
        Record,
        key=NULLABLE,
        value=NULLABLE,
        headers=st.lists(st.tuples(st.text(max_size=70), NULLABLE), max_size=3).map(tuple),
        timestamp_ms=st.integers(-1, 2**62),
    ),
    min_size=1,
    max_size=20,
)

pytestmark = pytest.mark.usefixtures("twin")


def at(offset: int, value: bytes | None = b"v", timestamp_ms: int = 0) -> Record:
    return Record(key=b"k", value=value, timestamp_ms=timestamp_ms, offset=offset)


@examples(50, deadline=None)
@given(records=RECORDS, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**60))
def test_records_read_back_as_they_were_built(records: list[Record], codec: Codec, base_offset: int) -> None:
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    header = read_header(batch)
    assert read_client_batch(batch) == header
    assert header.codec is codec
    assert header.base_timestamp == records[0].timestamp_ms
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    read = read_records(batch)
    assert [record.offset for record in read] == [base_offset + n for n in range(len(records))]
    rebuilt = build_batch(read, base_offset=base_offset, codec=codec)
    assert rebuilt == batch
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in read] == [
        (r.key, r.value, r.headers, r.timestamp_ms) for r in records
    ]


def test_records_may_keep_offsets_with_gaps() -> None:
    records = [at(100), at(103), at(350)]
    batch = build_batch(records, base_offset=98, keep_offsets=True)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.count) == (98, 350, 3)
    assert read_records(batch) == records


def test_a_batch_may_end_after_its_last_record_but_not_before_it() -> None:
    batch = build_batch([at(100), at(103)], base_offset=98, keep_offsets=True, last_offset_delta=9)
    assert read_header(batch).last_offset == 107
    assert [record.offset for record in read_records(batch)] == [100, 103]
    with pytest.raises(InvalidRecord, match="offset 103 is past the batch's last, 102"):
        build_batch([at(100), at(103)], base_offset=98, keep_offsets=True, last_offset_delta=4)


@pytest.mark.parametrize("offsets", [[5, 5], [6, 5], [3]])
def test_offsets_that_do_not_rise_from_the_base_offset_are_refused(offsets: list[int]) -> None:
    with pytest.raises(InvalidRecord, match="must rise"):
        build_batch([at(offset) for offset in offsets], base_offset=4, keep_offsets=True)


def test_a_batch_of_no_records_is_not_built() -> None:
    with pytest.raises(InvalidRecord, match="at least one"):
        build_batch([])


def test_timestamps_that_64_bits_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="too far"):
        build_batch([at(0, timestamp_ms=-(2**63)), at(1, timestamp_ms=2**63 - 1)])


def test_a_delete_horizon_stands_in_the_base_timestamp_and_records_keep_theirs() -> None:
    records = [at(4, None, 5000), at(6, b"v", 6000)]
    batch = build_batch(records, base_offset=4, keep_offsets=True, delete_horizon_ms=90_000)
    header = read_header(batch)
    assert header.delete_horizon_ms == header.base_timestamp == 90_000
    assert header.max_timestamp == 6000
    assert read_records(batch) == records


def test_log_append_time_is_every_records_time() -> None:
    batch = build_batch([at(0, timestamp_ms=8), at(1, timestamp_ms=9)], log_append_time=True)
    assert [record.timestamp_ms for record in read_records(batch)] == [9, 9]


def test_a_header_name_that_is_not_utf8_can_still_be_shown() -> None:
    record = Record(key=None, value=None, headers=(("name", b"x"),), timestamp_ms=0)
    batch = bytes(build_batch([record])).replace(b"name", b"n\xff\xfee")
    assert read_records(batch)[0].headers == (("n��e", b"x"),)


def test_a_transaction_marker_has_the_bytes_that_kafka_gives_it() -> None:
    marker = control_marker(
        commit=True,
        coordinator_epoch=9,
        producer_id=7,
        producer_epoch=1,
        timestamp_ms=123_456,
        base_offset=77,
    )
    assert marker.hex() == (
        "000000000000004d" "00000042" "ffffffff" "02" "40972b05" "0030" "00000000"
        "000000000001e240" "000000000001e240" "0000000000000007" "0001" "ffffffff" "00000001"
        "20" "00" "00" "00" "08" "00000001" "0c" "000000000009" "00"
    )  # fmt: skip
    check_batch(marker, 0, read_header(marker))


def test_an_abort_marker_differs_in_its_type_alone() -> None:
    abort, commit = (
        control_marker(commit=commit, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp_ms=5)
        for commit in (False, True)
    )
    assert (read_records(abort)[0].key, read_records(commit)[0].key) == (bytes(4), b"\0\0\0\1")
    assert read_header(abort).is_control
    assert read_header(abort).is_transactional
    assert read_records(abort)[0].value == read_records(commit)[0].value == bytes(6)


def test_a_skip_marker_is_a_commit_of_no_transaction_at_its_offset() -> None:
    marker = skip_marker(41, 1000)
    header = read_header(marker)
    assert (header.base_offset, header.last_offset, header.count) == (41, 41, 1)
    assert (header.attributes, header.producer_id) == (0x20, -1)
    assert read_records(marker) == [Record(key=b"\0\0\0\1", value=bytes(6), timestamp_ms=1000, offset=41)]


def test_reading_a_batch_that_is_cut_off_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="length"):
        read_records(build_batch([at(0)])[:-1])


@examples(50, deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=5000)), min_size=1, max_size=20),
    st.integers(0, 2**41),
    st.booleans(),
)
def test_pairs_are_built_as_records_are(
    pairs: list[tuple[bytes, bytes | None]], timestamp_ms: int, transactional: bool
) -> None:
    slow = build_batch(
        [Record(key=key, value=value, timestamp_ms=timestamp_ms) for key, value in pairs],
        base_offset=17,
        producer_id=4,
        producer_epoch=2,
        transactional=transactional,
    )
    quick = build_pairs(
        pairs,
        timestamp_ms,
        base_offset=17,
        producer_id=4,
        producer_epoch=2,
        attributes=TRANSACTIONAL if transactional else 0,
    )
    assert quick == slow


def test_a_batch_of_no_pairs_is_refused() -> None:
    with pytest.raises(InvalidRecord):
        build_pairs([], 0)
