import contextlib
import gzip
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import CorruptMessage, MessageTooLarge, UnsupportedCompression
from penstock.records.compression import XERIAL_HEADER, Codec, codec_of, compress, decompress
from tests.examples import examples

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1 << 20


def xerial(*blocks: bytes) -> bytes:
    return XERIAL_HEADER + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@pytest.mark.parametrize("codec", Codec)
@examples(50, deadline=None)
@given(data=st.binary(max_size=300), times=st.sampled_from([1, 1, 500]))
def test_compressed_bytes_are_decompressed_to_the_original(codec: Codec, data: bytes, times: int) -> None:
    data *= times
    assert decompress(codec, compress(codec, data), len(data)) == data
    assert decompress(codec, memoryview(compress(codec, bytearray(data))), len(data)) == data


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 1), (Codec.LZ4, 9), (Codec.ZSTD, 10), (Codec.SNAPPY, 1)])
def test_a_level_is_taken(codec: Codec, level: int) -> None:
    data = b"spring water " * 1000
    assert decompress(codec, compress(codec, data, level), len(data)) == data


def test_a_codec_is_the_lowest_three_bits_of_the_attributes() -> None:
    assert codec_of(0x10 | 4) is Codec.ZSTD
    with pytest.raises(UnsupportedCompression, match="type 5"):
        codec_of(5)


def test_snappy_is_read_as_one_raw_block_and_in_javas_framing() -> None:
    data = b"spring water " * 10_000
    assert decompress(Codec.SNAPPY, raw_snappy(data), len(data)) == data
    assert decompress(Codec.SNAPPY, xerial(raw_snappy(data[:500]), raw_snappy(data[500:])), len(data)) == data
    assert decompress(Codec.SNAPPY, xerial(), 0) == b""


def test_snappy_is_written_in_javas_framing_in_blocks_of_32_kib() -> None:
    data = b"0123456789abcdef" * 5000
    assert compress(Codec.SNAPPY, data) == xerial(
        raw_snappy(data[:32768]), raw_snappy(data[32768:65536]), raw_snappy(data[65536:])
    )


def test_lz4_blocks_do_not_depend_on_each_other_as_java_requires() -> None:
    assert lz4.frame.get_frame_info(compress(Codec.LZ4, b"water" * 100_000))["block_linked"] is False


@pytest.mark.parametrize(
    ("codec", "parts"),
    [
        (Codec.GZIP, [gzip.compress(b"one"), gzip.compress(b""), gzip.compress(b"two")]),
        (Codec.LZ4, [lz4.frame.compress(b"one"), lz4.frame.compress(b""), lz4.frame.compress(b"two")]),
        (Codec.ZSTD, [zstandard.compress(b"one"), zstandard.compress(b""), zstandard.compress(b"two")]),
    ],
)
def test_members_and_frames_may_follow_each_other(codec: Codec, parts: list[bytes]) -> None:
    assert decompress(codec, b"".join(parts), 6) == b"onetwo"
    with pytest.raises(MessageTooLarge):
        decompress(codec, b"".join(parts), 5)


def zstd_without_size(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


def lz4_without_size(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, store_size=False, block_linked=False))


@pytest.mark.parametrize(
    ("codec", "make"),
    [
        (Codec.GZIP, lambda: zlib.compress(bytes(64 * MIB), 9, 31)),
        (Codec.SNAPPY, lambda: raw_snappy(bytes(64 * MIB))),
        (Codec.SNAPPY, lambda: xerial(*[raw_snappy(bytes(MIB))] * 64)),
        (Codec.LZ4, lambda: lz4_without_size(bytes(64 * MIB))),
        (Codec.ZSTD, lambda: zstd_without_size(bytes(64 * MIB))),
        (Codec.ZSTD, lambda: zstandard.compress(bytes(64 * MIB))),
        (Codec.ZSTD, lambda: zstandard.compress(bytes(64 * 1024)) * 1024),
    ],
    ids=["gzip", "snappy", "xerial", "lz4", "zstd", "zstd-sized", "zstd-frames"],
)
def test_a_decompression_bomb_is_stopped_at_the_limit(codec: Codec, make: Callable[[], bytes]) -> None:
    bomb = make()  # here, because all workers collect this test
    with pytest.raises(MessageTooLarge, match=f"more than the {MIB} bytes allowed"):
        decompress(codec, bomb, MIB)


def test_a_snappy_block_that_claims_four_gigabytes_is_stopped_before_any_is_allocated() -> None:
    with pytest.raises(MessageTooLarge):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00", MIB)


def test_many_empty_members_take_time_in_proportion() -> None:
    # Each member returns what follows it: without feeding in steps this copies 10 GB.
    assert decompress(Codec.GZIP, gzip.compress(b"") * 20_000, 0) == b""


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_off_input_is_corrupt(codec: Codec) -> None:
    data = bytes(range(256)) * 20
    whole = compress(codec, data)
    # Cut inside of what precedes the last byte of data: trailers that carry none may be optional.
    for end in range(0, len(whole) - 1, 7):
        if codec is Codec.SNAPPY and end <= len(XERIAL_HEADER):
            continue
        with pytest.raises(CorruptMessage):
            decompress(codec, whole[:end], len(data))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_junk_after_the_end_is_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptMessage):
        decompress(codec, compress(codec, b"water") + b"\xff\xff\xff\xffjunk", 100)


@pytest.mark.parametrize("codec", COMPRESSED)
@examples(200, deadline=None)
@given(data=st.data())
def test_damaged_input_never_raises_anything_else(codec: Codec, data: st.DataObject) -> None:
    whole = bytearray(compress(codec, data.draw(st.binary(max_size=200)) * 5))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    for damaged in (whole, cut):
        with contextlib.suppress(CorruptMessage, MessageTooLarge):
            assert len(decompress(codec, damaged, 2000)) <= 2000
