"""The compiled and the pure kernel agree on everything, above all on damaged bytes."""

from array import array
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import PenstockError
from penstock.records import kernel
from penstock.records.build import Record, build_batch
from penstock.records.layout import HEADER_BYTES, BinaryColumn, HeadersColumn, IntColumn
from tests.examples import examples

pytestmark = pytest.mark.skipif(
    kernel.COMPILED is None, reason="the extension is not built, so there is nothing to compare"
)

NULLABLE = st.none() | st.binary(max_size=140)
RECORDS = st.lists(
    st.builds(
        Record,
        key=NULLABLE,
        value=NULLABLE,
        headers=st.lists(st.tuples(st.text("tag", max_size=3), NULLABLE), max_size=3).map(tuple),
        timestamp_ms=st.integers(0, 2**50),
    ),
    min_size=1,
    max_size=8,
)
INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 40)
INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 40)
VARINT_EDGES = st.sampled_from([0x00, 0x01, 0x02, 0x03, 0x0F, 0x10, 0x7F, 0x80, 0x81, 0xFE, 0xFF])


@st.composite
def damaged_bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """A good body with some bytes changed, inserted or gone, and the count it had."""
    records = draw(RECORDS)
    body = build_batch(records)[HEADER_BYTES:]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 2))] = bytes(draw(st.lists(VARINT_EDGES, max_size=10)))
    return bytes(body), len(records)


def outcome(work: Callable[[kernel.Kernel], object], twin: kernel.Kernel) -> object:
    """What the twin gave or, by kind, what it refused."""
    try:
        return plain(work(twin))
    except (PenstockError, ValueError) as error:
        return type(error)


def plain(result: object) -> object:
    if isinstance(result, tuple):
        return tuple(plain(item) for item in result)
    return (result.format, result.tolist()) if isinstance(result, memoryview) else result


def agree(work: Callable[[kernel.Kernel], object]) -> object:
    twins = [twin for twin in (kernel.COMPILED, kernel.PURE) if twin is not None]
    compiled, pure = (outcome(work, twin) for twin in twins)
    assert compiled == pure
    return pure


@examples(500)
@given(damaged_bodies(), st.integers(-1, 1), st.integers(-1, 10), INT64, INT64, st.booleans())
def test_twins_decode_or_refuse_the_same(
    damaged: tuple[bytes, int], more: int, last_offset_delta: int, offset: int, timestamp: int, same: bool
) -> None:
    body, count = damaged
    agree(lambda twin: twin.count_records(body, 0, len(body)))
    result = agree(lambda twin: twin.decode(body, count + more, last_offset_delta, offset, timestamp, same))
    if isinstance(result, type):
        return
    *_, headers_at, headers_count, _, _ = kernel.PURE.decode(
        body, count + more, last_offset_delta, offset, timestamp, same
    )
    agree(lambda twin: twin.list_headers(body, headers_at, headers_count))
    agree(lambda twin: twin.find_header(body, headers_at, headers_count, b"tag"))


@examples(300)
@given(st.binary(max_size=60), st.integers(-1, 70), st.integers(-1, 70))
def test_twins_count_noise_the_same(noise: bytes, start: int, end: int) -> None:
    agree(lambda twin: twin.count_records(noise, start, end))
    agree(lambda twin: twin.count_records(noise, 0, len(noise)))
    for count in range(4):
        agree(partial(decode_noise, noise, count))


def decode_noise(noise: bytes, count: int, twin: kernel.Kernel) -> object:
    return twin.decode(noise, count, 5, 0, 0, False)


@examples(300)
@given(st.binary(max_size=30), st.lists(st.tuples(INT32, INT32), max_size=10), st.data())
def test_twins_follow_or_refuse_the_same_positions(
    body: bytes, spans: list[tuple[int, int]], data: st.DataObject
) -> None:
    at = memoryview(array("i", [span[0] for span in spans]))
    length = memoryview(array("i", [span[1] for span in spans]))
    times = memoryview(array("q", data.draw(st.lists(INT64, min_size=len(spans), max_size=len(spans)))))
    mask = data.draw(st.binary(max_size=1) | st.binary(min_size=len(spans), max_size=len(spans)))
    agree(lambda twin: twin.gather([(body, at, length)]))
    agree(lambda twin: twin.gather([(body, at[:3], length[:3]), (body[1:], at[3:], length[3:])]))
    agree(lambda twin: twin.select(body, at, length, times, mask))
    agree(lambda twin: twin.find_header(body, at, length, body[1:2]))
    agree(lambda twin: twin.list_headers(body, at, length))


CELLS = st.lists(
    st.sampled_from([b"", b"1", b"-1", b"+7", b"007", b"0.5", b".5", b"5.", b"1e3", b"1e400", b"-0", b"9" * 19])
    | st.sampled_from([b"1" * 64, b"1" * 65, b"e", b"nan", b"inf", b"1_0", b" 1", b"true", b"FALSE", b"ab", b"aab"])
    | st.text("0123456789.eE+-", max_size=6).map(str.encode)
    | st.text("ab", max_size=6).map(str.encode)
    | st.binary(max_size=4),
    max_size=10,
)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 8) | st.floats(allow_nan=False)


@examples(400)
@given(CELLS, st.lists(st.tuples(st.integers(0, 9), INT32, INT32), max_size=1), st.data())
def test_twins_compare_or_refuse_the_same(
    cells: list[bytes], damage: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Cells that are there, null or absent; now and then one lies where no bytes are, or there is one too few."""
    rows = len(cells)
    nothing = data.draw(st.lists(st.sampled_from([0, 0, 0, -1, -2]), min_size=rows, max_size=rows))
    at = array("i", [sum(map(len, cells[:row])) for row in range(rows)])
    length = array("i", [len(cell) if state == 0 else state for cell, state in zip(cells, nothing, strict=True)])
    for row, start, size in damage:
        if row < rows:
            at[row], length[row] = start, size
    live = data.draw(st.none() | st.binary(min_size=rows, max_size=rows) | st.binary(max_size=2))
    if data.draw(st.integers(0, 19)) == 0:
        del length[-1:]
    body, column, sizes = b"".join(cells), memoryview(at), memoryview(length)
    op, texts = data.draw(st.integers(0, 5)), data.draw(CELLS)
    values = data.draw(st.lists(NUMBERS, max_size=12))
    from_start, to_end, flag = (data.draw(st.booleans()) for _ in range(3))
    agree(lambda twin: twin.match_text(body, column, sizes, live, op, texts[0] if texts else b"a"))
    agree(lambda twin: twin.match_texts(body, column, sizes, live, texts))
    agree(lambda twin: twin.match_flag(body, column, sizes, live, flag))
    agree(lambda twin: twin.match_numbers(body, column, sizes, live, op, values))
    agree(lambda twin: twin.match_pieces(body, column, sizes, live, texts, from_start, to_end))
    agree(lambda twin: twin.match_null(sizes))


STATES = st.lists(st.sampled_from([0, 1, 2]), max_size=10).map(bytes)


@given(st.lists(INT64, max_size=10), st.none() | STATES, st.integers(0, 5), INT64, STATES, STATES)
def test_twins_compare_numbers_and_join_results_the_same(
    numbers: list[int], live: bytes | None, op: int, value: int, one: bytes, other: bytes
) -> None:
    column = memoryview(array("q", numbers))
    agree(lambda twin: twin.match_ints(column, live, op, value))
    agree(lambda twin: twin.match_ints(column, None if live is None else live[: len(numbers)], op, value))
    for join in ("both", "either"):
        agree(lambda twin, join=join: getattr(twin, join)(one, other))  # type: ignore[misc]
        agree(lambda twin, join=join: getattr(twin, join)(one, (other + one)[: len(one)]))  # type: ignore[misc]


@st.composite
def binary_columns(draw: st.DrawFn, rows: int) -> BinaryColumn:
    """Mostly good: now and then shorter than the rows, or with offsets that go astray."""
    lengths = draw(st.lists(st.integers(0, 80), min_size=rows, max_size=rows))
    offsets = array("i", [sum(lengths[:row]) for row in range(rows + 1)])
    if draw(st.integers(0, 9)) == 0:
        offsets[draw(st.integers(0, rows))] = draw(INT32)
    size = max(offsets[-1], 0) if offsets[-1] < 10_000 else 10
    return BinaryColumn(
        offsets=memoryview(offsets),
        data=draw(st.binary(min_size=size, max_size=size)),
        validity=draw(st.none() | st.binary(min_size=rows // 8 + 1, max_size=rows // 8 + 1)),
        offset=draw(st.sampled_from([0, 0, 0, 1, -1])),
    )


@examples(300)
@given(st.data())
def test_twins_encode_or_refuse_the_same(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 12))
    start, end = data.draw(st.integers(0, 3)), data.draw(st.integers(0, rows))
    key, value = (data.draw(st.none() | binary_columns(rows)) for _ in range(2))
    times = data.draw(st.none() | st.lists(INT64, min_size=rows, max_size=rows))
    ends = data.draw(st.lists(st.integers(0, 6), min_size=rows + 1, max_size=rows + 1))
    headers = HeadersColumn(
        offsets=memoryview(array("i", sorted(ends))),
        names=data.draw(binary_columns(6)),
        values=data.draw(binary_columns(6)),
        validity=data.draw(st.none() | st.binary(min_size=2, max_size=2)),
        offset=data.draw(st.sampled_from([0, 0, 1])),
    )
    stamps = None if times is None else memoryview(array("q", times))
    base = data.draw(INT64)
    agree(lambda twin: twin.encode(start, end, key, value, stamps, base, headers))
    agree(lambda twin: twin.encode(start, end, key, value, stamps, base, None))


@examples(300)
@given(st.data())
def test_twins_share_out_and_gather_or_refuse_the_same(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 12))
    key, value = (data.draw(st.none() | binary_columns(rows)) for _ in range(2))
    numbers = data.draw(st.lists(st.integers(0, 3) | st.integers(-1, 5), min_size=rows, max_size=rows))
    wanted = IntColumn(
        data=memoryview(array("i", numbers)),
        validity=data.draw(st.none() | st.binary(min_size=1, max_size=2)),
        offset=data.draw(st.sampled_from([0, 0, 0, 1, -1])),
    )
    chosen = memoryview(array("i", data.draw(st.lists(st.integers(-1, 12), max_size=12))))
    partitions, keyless = data.draw(st.integers(0, 5)), data.draw(st.integers(-1, 4))
    for some in (None, chosen):
        agree(partial(spread_some, rows, some, key, wanted, partitions, keyless))
        agree(partial(spread_some, rows, some, key, None, partitions, keyless))
    times = data.draw(st.none() | st.lists(INT64, min_size=rows, max_size=rows))
    stamps = None if times is None else memoryview(array("q", times))
    start, end = data.draw(st.integers(-1, 3)), data.draw(st.integers(0, 12))
    delta, room, base = data.draw(st.integers(-1, 200)), data.draw(st.integers(-1, 400)), data.draw(INT64)
    agree(lambda twin: twin.encode_rows(chosen, start, end, delta, room, key, value, stamps, base, None))


def spread_some(
    rows: int,
    chosen: memoryview | None,
    key: BinaryColumn | None,
    wanted: IntColumn | None,
    partitions: int,
    keyless: int,
    twin: kernel.Kernel,
) -> object:
    return twin.spread(rows, chosen, key, wanted, partitions, keyless)


ENTRY_KIND = b"\x75\x9e"
ENTRY_RECORDS = st.lists(
    st.builds(
        Record,
        key=st.binary(max_size=12) | st.binary(min_size=8, max_size=8).map(lambda offset: ENTRY_KIND + offset),
        value=st.none() | st.binary(min_size=20, max_size=40),
        timestamp_ms=st.just(5),
    ),
    min_size=1,
    max_size=8,
)


@given(
    records=ENTRY_RECORDS, base=st.integers(0, 2**40), damage=st.lists(st.tuples(st.integers(0, 200), VARINT_EDGES))
)
def test_messages_that_wait_are_packed_alike(records: list[Record], base: int, damage: list[tuple[int, int]]) -> None:
    batch = build_batch(records, base_offset=base)
    for at, byte in damage[:3]:
        if HEADER_BYTES + at < len(batch):
            batch[HEADER_BYTES + at] = byte
    agree(lambda twin: twin.pack_entries(batch, ENTRY_KIND))


@given(entries=st.lists(st.binary(min_size=32, max_size=32), unique_by=lambda entry: entry[:16]))
def test_messages_that_wait_are_sorted_alike(entries: list[bytes]) -> None:
    def work(twin: kernel.Kernel) -> bytes:
        block = bytearray(b"".join(entries))
        twin.sort_entries(block)
        return bytes(block)

    agree(work)
    assert work(kernel.PURE) == b"".join(sorted(entries))


@examples(300)
@given(
    st.lists(st.none() | st.binary(max_size=7) | st.integers(0, 9).map(lambda number: b"\0\0\0\0%c!" % number)),
    st.sets(st.integers(0, 9) | INT32),
    st.integers(-1, 4),
)
def test_twins_find_the_same_schema_ids(cells: list[bytes | None], known: set[int], most: int) -> None:
    body = b"".join(cell or b"" for cell in cells)
    at, length = array("i"), array("i")
    for cell in cells:
        at.append(at[-1] + max(0, length[-1]) if at else 0)
        length.append(-1 if cell is None else len(cell))
    columns = body, memoryview(at), memoryview(length)
    ids = memoryview(array("i", sorted(known)))
    states = agree(lambda twin: twin.match_schema_ids(*columns, ids))
    assert isinstance(states, bytes)
    numbers = [
        int.from_bytes(cell[1:5], "big", signed=True) if cell is not None and len(cell) > 4 and cell[0] == 0 else None
        for cell in cells
    ]
    expected = [
        0 if cell is None or number in known else 1 if number is None else 2
        for cell, number in zip(cells, numbers, strict=True)
    ]
    assert list(states) == expected
    unknown = list(dict.fromkeys(number for number in numbers if number is not None and number not in known))
    found = agree(lambda twin: twin.list_schema_ids(*columns, states, most))
    assert found == (ValueError if most < 0 else unknown[:most])


@examples(200)
@given(st.binary(max_size=30), st.lists(st.tuples(INT32, INT32), max_size=4), st.binary(max_size=5))
def test_twins_refuse_the_same_positions_of_schema_ids(
    body: bytes, cells: list[tuple[int, int]], states: bytes
) -> None:
    at, length = (memoryview(array("i", [cell[part] for cell in cells])) for part in (0, 1))
    agree(lambda twin: twin.match_schema_ids(body, at, length, memoryview(array("i", [1, 2]))))
    agree(lambda twin: twin.list_schema_ids(body, at, length, states, 3))
