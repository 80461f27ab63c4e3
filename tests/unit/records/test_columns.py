import struct
from array import array

import pytest
from crc32c import crc32c

from penstock.foundation.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from penstock.records import columns as columns_module
from penstock.records import kernel
from penstock.records.batch import assemble, check_batch, patch_log_append_time, read_header
from penstock.records.build import Record, build_batch, read_records
from penstock.records.columns import decode_columns, encode_columns, gather, header_column, select_records
from penstock.records.compression import Codec
from penstock.records.layout import HEADER_BYTES, BinaryColumn, HeadersColumn
from penstock.records.varint import encode_varint

pytestmark = pytest.mark.usefixtures("twin")

RECORDS = [
    Record(key=b"a", value=b"one", timestamp_ms=1000, headers=(("tag", b"eu"), ("tag", b"uk"))),
    Record(key=None, value=b"", timestamp_ms=900, headers=(("other", b"x"), ("tag", None))),
    Record(key=b"", value=None, timestamp_ms=1900),
    Record(key=b"b" * 300, value=b"z" * 20_000, timestamp_ms=1200, headers=(("ta", b"eu"), ("tags", b"uk"))),
]


def record(payload: str) -> bytes:
    """A record's bytes after its length, written in hex, with its length in front."""
    data = bytes.fromhex(payload)
    return encode_varint(len(data)) + data


def batch_of(body: bytes, *, count: int = 1, last_offset_delta: int = 5, **fields: int) -> bytearray:
    values = {"base_offset": 0, "base_timestamp": 0} | fields
    return assemble(
        body,
        count=count,
        attributes=0,
        last_offset_delta=last_offset_delta,
        leader_epoch=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        **values,
    )


def test_the_compiled_twin_is_used_when_it_is_there() -> None:
    assert columns_module.COMPILED is (kernel.COMPILED is not None)


@pytest.mark.parametrize("codec", Codec)
def test_columns_say_where_everything_is(codec: Codec) -> None:
    batch = build_batch(RECORDS, base_offset=70, codec=codec)
    columns = decode_columns(batch)
    assert columns.count == 4
    assert columns.offsets.tolist() == [70, 71, 72, 73]
    assert columns.timestamps.tolist() == [1000, 900, 1900, 1200]
    assert [columns.key(row) for row in range(4)] == [record.key for record in RECORDS]
    assert [columns.value(row) for row in range(4)] == [record.value for record in RECORDS]
    assert columns.key_len.tolist() == [1, -1, 0, 300]
    assert columns.headers_count.tolist() == [2, 2, 0, 2]
    whole = [columns.body[at : at + n] for at, n in zip(columns.record_at, columns.record_len, strict=True)]
    assert b"".join(whole) == bytes(columns.body)
    assert columns.offsets.format == columns.timestamps.format == "q"
    assert {getattr(columns, name).format for name in columns.__slots__ if name.endswith(("_at", "_len"))} == {"i"}


def test_decoding_an_uncompressed_batch_copies_no_payload() -> None:
    batch = build_batch(RECORDS)
    columns = decode_columns(batch)
    assert isinstance(columns.body, memoryview)
    assert columns.body.obj is batch


def test_only_the_first_of_several_batches_is_decoded() -> None:
    assert decode_columns(build_batch(RECORDS) + build_batch(RECORDS[:1])).count == 4


def test_log_append_time_overrules_the_records_own() -> None:
    batch = build_batch(RECORDS)
    patch_log_append_time(batch, 0, 5555)
    assert decode_columns(batch).timestamps.tolist() == [5555] * 4


def test_an_empty_batch_has_empty_columns() -> None:
    assert decode_columns(batch_of(b"", count=0)).count == 0


def test_a_body_over_the_limit_is_refused() -> None:
    with pytest.raises(MessageTooLarge):
        decode_columns(build_batch(RECORDS, codec=Codec.ZSTD), max_bytes=1000)


# attributes, timestamp delta, offset delta, key length and key, value length and value, headers
GOOD = "00 00 00 02 6b 04 7676 00"


@pytest.mark.parametrize(
    "body",
    [
        record(GOOD)[:-1],
        record(GOOD) + b"\x00",
        record(GOOD + "00"),
        record(""),
        record("00 00 00 01 01"),
        record("00 00 00 03 6b 04 7676 00"),  # key of -2 bytes
        record("00 00 00 02 6b 03 7676 00"),  # value of -2 bytes
        record("00 00 00 80010000 01 00"),  # key past the end
        record("00 00 00 01 feffffff0f 00"),  # value of 2 GiB
        record("00 00 00 01 ffffffff0f 00"),  # value of -2 GiB
        record("00 00 00 01 01 01"),  # -1 headers
        record("00 00 00 01 01 02"),  # a header that is not there
        record("00 00 00 01 01 feffffff0f"),  # two billion headers
        record("00 00 00 01 01 02 01 01"),  # a header without a name
        record("00 00 00 01 01 02 02 6e 03"),  # header value of -2 bytes
        record("00 00 0c 01 01 00"),  # offset after the last
        record("00 00 01 01 01 00"),  # offset before the first
        record("00 ffffffffffffffffff02 00 01 01 00"),  # timestamp delta of 65 bits
        record("00 00 ffffffff10 01 01 00"),  # offset delta of 33 bits
        record("00 00 ffffffffffffffff 01 01 00"),
        b"\x01" + bytes(6),  # a record of -1 bytes
        b"\xff\xff\xff\xff\x0f" + bytes(6),
        b"\xfe\xff\xff\xff\x0f" + bytes(6),
    ],
)
def test_a_record_that_does_not_agree_with_itself_is_corrupt(body: bytes) -> None:
    decode_columns(batch_of(record(GOOD)))
    with pytest.raises(CorruptMessage):
        decode_columns(batch_of(body))


@pytest.mark.parametrize(
    ("fields", "count"),
    [({}, 0), ({}, 2), ({}, 2**31 - 1), ({}, -1), ({"base_offset": 2**63 - 1}, 1)],
)
def test_a_count_or_offset_that_cannot_be_is_corrupt(fields: dict[str, int], count: int) -> None:
    with pytest.raises(CorruptMessage):
        decode_columns(batch_of(record("00 00 02 01 01 00"), count=count, **fields))


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1)])
def test_timestamps_that_overflow_are_corrupt(base: int, delta: int) -> None:
    body = record("00" + encode_varint(delta).hex() + "00 01 01 00")
    with pytest.raises(CorruptMessage):
        decode_columns(batch_of(body, base_timestamp=base))


def test_offsets_within_a_batch_must_rise() -> None:
    one, two = record("00 00 02 01 01 00"), record("00 00 04 01 01 00")
    assert decode_columns(batch_of(one + two, count=2)).offsets.tolist() == [1, 2]
    for body in (one + one, two + one):
        with pytest.raises(CorruptMessage):
            decode_columns(batch_of(body, count=2))


@pytest.mark.parametrize("length", [-1, 0, 48, 10_000])
def test_a_length_that_the_batch_does_not_have_is_corrupt(length: int) -> None:
    batch = build_batch(RECORDS[:1])
    batch[8:12] = struct.pack(">i", length)
    with pytest.raises(CorruptMessage, match="length"):
        decode_columns(batch)


def test_a_header_column_has_the_first_header_of_that_name() -> None:
    columns = decode_columns(build_batch(RECORDS))
    at, length = header_column(columns, b"tag")
    assert length.tolist() == [2, -1, -2, -2]
    assert bytes(columns.body[at[0] : at[0] + 2]) == b"eu"
    assert header_column(columns, b"")[1].tolist() == [-2] * 4


@pytest.mark.parametrize(("at", "count"), [(-1, 1), (10**6, 1), (0, -1), (0, 10**6), (0, 3)])
def test_header_positions_outside_of_the_body_are_not_followed(twin: kernel.Kernel, at: int, count: int) -> None:
    where = memoryview(array("i", [at])), memoryview(array("i", [count]))
    with pytest.raises(CorruptMessage):
        twin.find_header(b"\x02a\x02b" + b"\x04", *where, b"c")
    with pytest.raises(CorruptMessage):
        twin.list_headers(b"\x02a\x02b" + b"\x04", *where)


def test_gathering_lays_out_bytes_as_arrow_does() -> None:
    at, length = array("i", [0, 0, 9, 1, 2, 0, 3, 0, 4]), array("i", [1, -1, 0, 2, 3, -2, 0, 0, 1])
    offsets, data, validity, nulls = gather(b"abcdefghi", memoryview(at), memoryview(length))
    assert array("i", offsets).tolist() == [0, 1, 1, 1, 3, 6, 6, 6, 6, 7]
    assert data == b"abccdee"
    assert validity == bytes([0b11011101, 0b1])
    assert nulls == 2


@pytest.mark.parametrize(("at", "length"), [(-1, 1), (0, 4), (4, 0), (2, 2**31 - 1), (2**31 - 1, 1)])
def test_gathering_does_not_reach_outside_of_the_body(at: int, length: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        gather(b"abc", memoryview(array("i", [at])), memoryview(array("i", [length])))


def test_gathering_wants_as_many_lengths_as_positions() -> None:
    with pytest.raises(ValueError, match=r"lengths|shorter"):
        gather(b"abc", memoryview(array("i", [0, 0])), memoryview(array("i", [0])))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("keep_last_offset", [True, False])
def test_selected_records_keep_offsets_times_and_producer(codec: Codec, keep_last_offset: bool) -> None:
    batch = build_batch(
        RECORDS,
        base_offset=70,
        codec=codec,
        producer_id=8,
        producer_epoch=1,
        base_sequence=30,
        transactional=True,
        leader_epoch=6,
    )
    selected = select_records(batch, decode_columns(batch), b"\x00\x01\x00\x00", keep_last_offset=keep_last_offset)
    assert selected is not None
    before, after = read_header(batch), read_header(selected)
    check_batch(selected, 0, after)
    assert after == before._replace(
        length=after.length,
        crc=after.crc,
        last_offset_delta=3 if keep_last_offset else 1,
        max_timestamp=900,
        count=1,
    )
    assert read_records(selected) == [read_records(batch)[1]]


@pytest.mark.parametrize("keep_last_offset", [True, False])
def test_selecting_all_gives_the_same_batch_and_nothing_gives_none(keep_last_offset: bool) -> None:
    batch = bytes(build_batch(RECORDS, codec=Codec.GZIP))
    columns = decode_columns(batch)
    assert select_records(batch, columns, b"\x01" * 4, keep_last_offset=keep_last_offset) == batch
    assert select_records(batch, columns, bytes(4), keep_last_offset=keep_last_offset) is None


def test_compacted_batches_can_be_selected_from_again() -> None:
    batch = bytes(build_batch(RECORDS, base_offset=70))
    for mask in (b"\x01\x00\x01\x01", b"\x01\x00\x01", b"\x00\x01"):
        batch = select_records(batch, decode_columns(batch), mask, keep_last_offset=True) or b""
    assert [record.offset for record in read_records(batch)] == [73]
    assert read_header(batch).last_offset == 73


def test_log_append_time_survives_selection() -> None:
    batch = build_batch(RECORDS)
    patch_log_append_time(batch, 0, 5555)
    selected = select_records(batch, decode_columns(batch), b"\x01\x00\x00\x00", keep_last_offset=False)
    assert selected is not None
    assert [record.timestamp_ms for record in read_records(selected)] == [5555]


@pytest.mark.parametrize("mask", [b"", b"\x01" * 3, b"\x01" * 5])
def test_a_mask_of_the_wrong_size_is_refused(mask: bytes) -> None:
    batch = build_batch(RECORDS)
    with pytest.raises(ValueError, match="mask"):
        select_records(batch, decode_columns(batch), mask, keep_last_offset=False)


def binary(*cells: bytes | None, offset: int = 0) -> BinaryColumn:
    ends = array("i", [0])
    for cell in cells:
        ends.append(ends[-1] + len(cell or b""))
    bits = sum((cell is not None) << row for row, cell in enumerate(cells))
    return BinaryColumn(
        offsets=memoryview(ends),
        data=b"".join(cell or b"" for cell in cells),
        validity=bits.to_bytes(len(cells) // 8 + 1, "little"),
        offset=offset,
    )


def test_rows_of_arrow_columns_become_a_batch() -> None:
    headers = HeadersColumn(
        offsets=memoryview(array("i", [0, 0, 2, 2, 3])),
        validity=b"\x0e",
        names=binary(b"-", b"h", b"i", b"j", offset=1),
        values=binary(b"1", None, b"3"),
    )
    batch = encode_columns(
        start=1,
        end=4,
        key=binary(b"a", b"b", None, b"d"),
        value=binary(b"?", b"A", b"B", None, b"D" * 9000, offset=1),
        timestamps=memoryview(array("q", [5, 40, 30, 50])),
        headers=headers,
        codec=Codec.LZ4,
        producer_id=3,
        producer_epoch=2,
        base_sequence=1,
        transactional=True,
    )
    header = read_header(batch)
    check_batch(batch, 0, header)
    assert (header.base_timestamp, header.max_timestamp, header.count) == (40, 50, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 2, 1)
    assert (header.codec, header.is_transactional) == (Codec.LZ4, True)
    assert read_records(batch) == [
        Record(key=b"b", value=b"B", timestamp_ms=40, offset=0, headers=(("h", b"1"), ("i", None))),
        Record(key=None, value=None, timestamp_ms=30, offset=1),
        Record(key=b"d", value=b"D" * 9000, timestamp_ms=50, offset=2, headers=(("j", b"3"),)),
    ]


def test_columns_that_are_not_there_are_nulls_at_one_time() -> None:
    batch = encode_columns(start=0, end=2, key=None, value=None, timestamp_ms=77)
    assert [(r.key, r.value, r.timestamp_ms) for r in read_records(batch)] == [(None, None, 77)] * 2
    assert (read_header(batch).base_timestamp, read_header(batch).max_timestamp) == (77, 77)


def test_a_batch_encoded_from_columns_is_the_batch_built_from_records() -> None:
    records = [Record(key=b"k", value=b"v" * n, timestamp_ms=100 + 7 * n) for n in range(200)]
    times = array("q", [record.timestamp_ms for record in records])
    encoded = encode_columns(
        start=0,
        end=200,
        key=binary(*[b"k"] * 200),
        value=binary(*[record.value for record in records]),
        timestamps=memoryview(times),
    )
    assert encoded == build_batch(records)
    assert encoded[17:21] == crc32c(bytes(encoded[21:])).to_bytes(4, "big")


ONE_TIME = memoryview(array("q", [0]))


@pytest.mark.parametrize(
    ("start", "end", "value", "timestamps"),
    [
        (0, 0, binary(b"a"), None),
        (1, 0, binary(b"a"), None),
        (-1, 1, binary(b"a"), None),
        (0, 2, binary(b"a"), None),
        (0, 1, binary(b"a", offset=1), None),
        (0, 1, binary(b"a", offset=-1), None),
        (0, 2, binary(b"a", b"b"), ONE_TIME),
        (2, 3, binary(b"a", b"b", b"c"), ONE_TIME),
        (0, 1, BinaryColumn(offsets=b"", data=b""), None),
        (0, 1, BinaryColumn(offsets=array("i", [0, 2]).tobytes(), data=b"a"), None),
        (0, 1, BinaryColumn(offsets=array("i", [-1, 1]).tobytes(), data=b"a"), None),
        (0, 1, BinaryColumn(offsets=array("i", [1, 0]).tobytes(), data=b"a"), None),
        (0, 1, BinaryColumn(offsets=array("i", [0, 1]).tobytes(), data=b"a", validity=b""), None),
    ],
)
def test_rows_that_the_columns_do_not_have_are_refused(
    start: int, end: int, value: BinaryColumn, timestamps: memoryview | None
) -> None:
    with pytest.raises(ValueError, match=r"row|outside"):
        encode_columns(start=start, end=end, key=None, value=value, timestamps=timestamps)


@pytest.mark.parametrize("span", [[0, 2], [-1, 1], [1, 0]])
def test_headers_that_the_columns_do_not_have_are_refused(span: list[int]) -> None:
    headers = HeadersColumn(offsets=memoryview(array("i", span)), names=binary(b"n"), values=binary(b"v"))
    with pytest.raises(ValueError, match=r"row|outside"):
        encode_columns(start=0, end=1, key=None, value=None, headers=headers)


def test_a_header_without_a_name_is_refused() -> None:
    headers = HeadersColumn(offsets=memoryview(array("i", [0, 1])), names=binary(None), values=binary(b"v"))
    with pytest.raises(InvalidRecord, match="without a name"):
        encode_columns(start=0, end=1, key=None, value=None, headers=headers)


@pytest.mark.parametrize("times", [[-1, 2**63 - 1], [1, -(2**63)]])
def test_times_that_64_bits_cannot_tell_apart_are_refused(times: list[int]) -> None:
    with pytest.raises(InvalidRecord, match="too far"):
        encode_columns(start=0, end=2, key=None, value=None, timestamps=memoryview(array("q", times)))


def test_the_body_starts_right_after_the_header() -> None:
    batch = build_batch(RECORDS[:1])
    columns = decode_columns(batch)
    at, size = columns.record_at[0], columns.record_len[0]
    assert batch[HEADER_BYTES + at : HEADER_BYTES + at + size] == bytes(columns.body)
