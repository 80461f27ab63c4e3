import pytest
from crc32c import crc32c

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import CorruptMessage, InvalidRecord, PenstockError, UnsupportedCompression
from penstock.records import kernel
from penstock.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    MAGIC_AT,
    batches,
    check_batch,
    patch_log_append_time,
    patch_offsets,
    read_client_batch,
    read_header,
)
from penstock.records.build import Record, build_batch, read_records
from penstock.records.compression import Codec
from penstock.records.errors import UnsupportedMessageFormat
from penstock.records.layout import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Buffer,
)

RECORDS = [Record(key=b"k", value=b"v" * n, timestamp_ms=1_700_000_000_000 + n) for n in (1, 70, 9000)]


def batch_with(**fields: int) -> bytearray:
    """A batch with a wrong header and a valid CRC."""
    batch = build_batch(RECORDS)
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(**fields))
    return sealed(batch)


def sealed(batch: bytearray) -> bytearray:
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(batch[ATTRIBUTES_AT:])).to_bytes(4, "big")
    return batch


def check(batch: Buffer) -> None:
    assert read_client_batch(batch) == read_header(batch)


def test_a_header_reads_as_it_was_written() -> None:
    batch = build_batch(
        RECORDS,
        base_offset=40,
        leader_epoch=3,
        codec=Codec.LZ4,
        producer_id=9,
        producer_epoch=2,
        base_sequence=5,
        transactional=True,
    )
    header = read_header(b"..." + batch, 3)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 42, 43)
    assert (header.leader_epoch, header.magic, header.count) == (3, 2, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 5)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_001, 1_700_000_009_000)
    assert header.codec is Codec.LZ4
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert header.delete_horizon_ms is None


def test_a_header_that_is_cut_off_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="needs 61 bytes, 60 are there"):
        read_header(build_batch(RECORDS)[: HEADER_BYTES - 1])


def test_batches_are_walked_and_a_partial_one_at_the_end_is_left_out() -> None:
    one, two = build_batch(RECORDS, base_offset=0), build_batch(RECORDS[:1], base_offset=3)
    whole = bytes(one + two)
    assert [(at, header.base_offset) for at, header in batches(whole)] == [(0, 0), (len(one), 3)]
    for end in range(len(one), len(whole)):
        assert [at for at, _ in batches(memoryview(whole)[:end])] == [0]
    for end in range(len(one)):
        assert list(batches(whole[:end])) == []


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_that_cannot_be_stops_the_walk_with_an_error(length: int) -> None:
    with pytest.raises(CorruptMessage, match="length"):
        list(batches(batch_with(length=length)))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [17, 40, 200])
def test_messages_of_the_old_formats_are_named_as_such(magic: int, size: int) -> None:
    message = bytearray(size)
    message[11] = size - 12
    message[MAGIC_AT] = magic
    with pytest.raises(UnsupportedMessageFormat, match=f"v{magic}") as refused:
        list(batches(message))
    assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("magic", [3, -1])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    batch = batch_with(magic=magic)
    with pytest.raises(CorruptMessage, match="magic"):
        list(batches(batch))
    with pytest.raises(CorruptMessage, match="magic"):
        check_batch(batch, 0, read_header(batch))


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", Codec)
def test_a_valid_batch_passes_at_any_position(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, producer_id=4, producer_epoch=0, base_sequence=0)
    check(batch)
    check(memoryview(b"before" + batch + b"after")[6:-5])
    check(memoryview(batch).toreadonly())


def test_two_batches_where_one_is_expected_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="exactly one"):
        read_client_batch(build_batch(RECORDS) + build_batch(RECORDS))


@pytest.mark.usefixtures("twin")
def test_a_batch_with_a_wrong_crc_is_refused() -> None:
    good = build_batch(RECORDS)
    for at in (CRC_AT, ATTRIBUTES_AT + 1, HEADER_BYTES, len(good) - 1):
        bad = bytearray(good)
        bad[at] ^= 0x80
        with pytest.raises(CorruptMessage, match="CRC"):
            check_batch(bad, 0, read_header(bad))


def test_base_offset_and_leader_epoch_may_change_without_a_new_crc() -> None:
    batch = build_batch(RECORDS)
    before = read_header(batch)
    patch_offsets(batch, 0, 2**40, before.length, 77)
    header = read_header(batch)
    assert header == before._replace(base_offset=2**40, leader_epoch=77)
    check_batch(batch, 0, header)
    assert [record.offset for record in read_records(batch)] == [2**40, 2**40 + 1, 2**40 + 2]


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("codec", Codec)
def test_log_append_time_is_stamped_on_every_record_and_sealed(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    padded = bytearray(5) + batch
    patch_log_append_time(memoryview(padded), 5, 1_800_000_000_000)
    header = read_header(padded, 5)
    assert header.is_log_append_time
    assert header.codec is codec
    assert header.max_timestamp == 1_800_000_000_000
    check_batch(padded, 5, header)
    assert {record.timestamp_ms for record in read_records(padded[5:])} == {1_800_000_000_000}


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"count": 0, "last_offset_delta": 0}, CorruptMessage),
        ({"count": -1}, CorruptMessage),
        ({"last_offset_delta": -1}, CorruptMessage),
        ({"last_offset_delta": 3}, CorruptMessage),
        ({"count": 4}, CorruptMessage),
        ({"count": 4, "last_offset_delta": 3}, CorruptMessage),
        ({"count": 2, "last_offset_delta": 1}, CorruptMessage),
        ({"attributes": CONTROL}, InvalidRecord),
        ({"attributes": DELETE_HORIZON}, InvalidRecord),
        ({"attributes": LOG_APPEND_TIME}, InvalidRecord),
        ({"attributes": TRANSACTIONAL}, InvalidRecord),
        ({"attributes": 5}, UnsupportedCompression),
        ({"attributes": 7}, UnsupportedCompression),
        ({"producer_id": -2}, InvalidRecord),
        ({"producer_id": 1, "producer_epoch": -1, "base_sequence": 0}, InvalidRecord),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, InvalidRecord),
        ({"length": 48}, CorruptMessage),
        ({"length": 2**31 - 1}, CorruptMessage),
    ],
)
def test_a_client_batch_that_makes_no_sense_is_refused(fields: dict[str, int], error: type[PenstockError]) -> None:
    with pytest.raises(error):
        check(batch_with(**fields))


@pytest.mark.usefixtures("twin")
def test_records_that_do_not_fill_the_body_exactly_are_refused() -> None:
    batch = build_batch(RECORDS)
    for body in (batch[HEADER_BYTES:-1], batch[HEADER_BYTES:] + b"\x00", b""):
        changed = batch[:HEADER_BYTES] + body
        changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
        with pytest.raises(CorruptMessage, match="3 records"):
            check(sealed(changed))


@pytest.mark.usefixtures("twin")
def test_a_broker_batch_may_be_a_marker_or_have_gaps_or_be_empty() -> None:
    for batch in (
        batch_with(attributes=CONTROL),
        batch_with(last_offset_delta=90),
        batch_with(count=0),
    ):
        check_batch(batch, 0, read_header(batch))


@pytest.mark.parametrize("start_end", [(-1, 2), (2, 1), (0, 4)])
def test_records_are_not_counted_outside_of_the_buffer(twin: kernel.Kernel, start_end: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="outside"):
        twin.count_records(b"abc", *start_end)
