"""The last offset of every key: both implementations, against a dictionary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import CorruptMessage
from penstock.records import kernel
from penstock.records.build import Record, build_batch
from penstock.records.columns import Columns, decode_columns
from tests.examples import examples

SECRET = bytes(range(16))
TWINS = [pytest.param(kernel.PURE, id="pure")]
if kernel.COMPILED is not None:
    TWINS.append(pytest.param(kernel.COMPILED, id="compiled"))

rows = st.lists(
    st.tuples(st.none() | st.binary(max_size=20) | st.sampled_from([b"a", b"b", b""]), st.none() | st.just(b"v")),
    min_size=1,
    max_size=40,
)


def _columns(records: list[tuple[bytes | None, bytes | None]], base_offset: int) -> Columns:
    return decode_columns(
        build_batch([Record(key=key, value=value, timestamp_ms=1) for key, value in records], base_offset=base_offset)
    )


@pytest.mark.parametrize("twin", TWINS)
@examples(100, deadline=None)
@given(noted=rows, asked=rows, drop=st.booleans())
def test_a_record_is_kept_if_no_later_one_has_its_key(
    twin: kernel.Kernel,
    noted: list[tuple[bytes | None, bytes | None]],
    asked: list[tuple[bytes | None, bytes | None]],
    drop: bool,
) -> None:
    table = twin.new_key_table(SECRET)
    first = _columns(noted, 20)
    table.note(first.body, first.key_at, first.key_len, first.offsets)
    last = {key: 20 + row for row, (key, _) in enumerate(noted) if key is not None}
    assert len(table) == len(last)
    for base, records in ((0, asked), (20, noted), (1000, asked)):
        columns = _columns(records, base)
        mask = table.mask(columns.body, columns.key_at, columns.key_len, columns.value_len, columns.offsets, drop)
        expected = [
            key is not None and not (drop and value is None) and base + row >= last.get(key, -1)
            for row, (key, value) in enumerate(records)
        ]
        assert [bool(byte) for byte in mask] == expected


@pytest.mark.parametrize("twin", TWINS)
def test_a_table_grows_to_many_keys(twin: kernel.Kernel) -> None:
    table = twin.new_key_table(SECRET)
    for base in range(0, 20_000, 1000):
        columns = _columns([(b"key-%d" % (base + row), b"") for row in range(1000)], base)
        table.note(columns.body, columns.key_at, columns.key_len, columns.offsets)
    assert len(table) == 20_000
    columns = _columns([(b"key-%d" % row, b"") for row in range(1000)], 500)
    mask = table.mask(columns.body, columns.key_at, columns.key_len, columns.value_len, columns.offsets, False)
    assert bytes(mask) == bytes([1]) * 1000


@pytest.mark.parametrize("twin", TWINS)
def test_keys_outside_the_body_and_columns_that_do_not_agree_are_refused(twin: kernel.Kernel) -> None:
    table = twin.new_key_table(SECRET)
    ints = memoryview(bytes(8)).cast("i")
    far = memoryview((100).to_bytes(4, "little") * 2).cast("i")
    longs = memoryview(bytes(16)).cast("q")
    with pytest.raises(CorruptMessage):
        table.note(b"body", far, far, longs)
    with pytest.raises(ValueError, match="different lengths"):
        table.note(b"body", ints, ints[:1], longs)
    with pytest.raises(ValueError, match="different lengths"):
        table.mask(b"body", ints, ints, ints[:1], longs, False)
    with pytest.raises(ValueError, match="16 bytes"):
        twin.new_key_table(b"short")
