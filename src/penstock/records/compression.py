"""The five codecs of record batches. Decompression is bounded: a small batch may hold a huge body."""

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Protocol

import cramjam
import lz4.frame
import zstandard

from penstock.foundation.errors import CorruptMessage, MessageTooLarge, UnsupportedCompression
from penstock.records.layout import CODEC_MASK, Buffer

DECOMPRESSED_BYTES_MAX: Final = 128 << 20
GZIP_WBITS = 31  # zlib's number for "with a gzip header and trailer"

# Java's snappy stream: this header, then blocks, each a big-endian int32 length and raw snappy. No raw block
# starts like the header (it would begin with a copy of bytes that are not there yet): both can be told apart.
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES = 32 << 10

# Streams are fed in steps: what one step may inflate to (gzip 1032:1, lz4 255:1, zstd 128 KiB for four bytes)
# bounds how far the output can pass its limit before it is noticed, here by 16 to 32 MiB.
GZIP_STEP_BYTES = 16 << 10
LZ4_STEP_BYTES = 64 << 10
ZSTD_STEP_BYTES = 1 << 10


class Codec(IntEnum):
    """What the lowest three bits of a batch's attributes say."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_BY_BITS: Final = tuple(Codec)


def codec_of(attributes: int) -> Codec:
    """The codec that a batch's attributes name, e.g. `codec_of(0x14) is Codec.ZSTD`."""
    bits = attributes & CODEC_MASK
    if bits >= len(_BY_BITS):
        raise UnsupportedCompression(f"compression type {bits} is unknown: 0 to {_BY_BITS[-1]} are supported")
    return _BY_BITS[bits]


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress the records of a batch; `level` is the codec's own (snappy has none), its default if None."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, -1 if level is None else level, GZIP_WBITS)
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            # Kafka's Java reader refuses frames whose blocks depend on each other.
            compressed: bytes = lz4.frame.compress(data, compression_level=level or 0, block_linked=False)
            return compressed
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def decompress(codec: Codec, data: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The records of a batch. More than `max_bytes` of them: MessageTooLarge; damaged: CorruptMessage."""
    match codec:
        case Codec.NONE:
            if len(data) > max_bytes:
                raise _too_large(max_bytes)
            return bytes(data)
        case Codec.GZIP:
            return _inflate(_gzip_stream, data, GZIP_STEP_BYTES, max_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), max_bytes)
        case Codec.LZ4:
            return _inflate(lz4.frame.LZ4FrameDecompressor, data, LZ4_STEP_BYTES, max_bytes)
        case Codec.ZSTD:
            return _inflate(_zstd_stream, data, ZSTD_STEP_BYTES, max_bytes)


def unzstd_into(data: Buffer, room: memoryview) -> int | None:
    """How many bytes of `room` the records of a batch have filled; None if they do not fit or are damaged.

    Much faster than `decompress`, which says what is wrong: it is bounded by the room, not by small steps.
    """
    try:
        return int(cramjam.zstd.decompress_into(data, room))
    except cramjam.DecompressionError:
        return None


class _Stream(Protocol):
    """Reads one gzip member, LZ4 frame or zstd frame."""

    def decompress(self, data: Buffer) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def _gzip_stream() -> _Stream:
    return zlib.decompressobj(GZIP_WBITS)


def _zstd_stream() -> _Stream:
    return zstandard.ZstdDecompressor().decompressobj()


def _inflate(new_stream: Callable[[], _Stream], data: Buffer, step_bytes: int, max_bytes: int) -> bytes:
    view = memoryview(data)
    pieces: list[bytes] = []
    total = 0
    stream = new_stream()
    try:
        for at in range(0, len(view), step_bytes):
            step: Buffer = view[at : at + step_bytes]
            while step:
                if stream.eof:  # members and frames may follow each other
                    stream = new_stream()
                piece = stream.decompress(step)
                total += len(piece)
                if total > max_bytes:
                    raise _too_large(max_bytes)
                pieces.append(piece)
                step = stream.unused_data if stream.eof else b""
    except (zlib.error, zstandard.ZstdError, RuntimeError) as error:  # lz4 raises RuntimeError
        raise CorruptMessage(f"compressed records are damaged: {error}") from error
    if not stream.eof:
        raise CorruptMessage(f"compressed records are cut off after {len(view)} bytes")
    return b"".join(pieces)


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    pieces = [XERIAL_HEADER]
    for at in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + XERIAL_BLOCK_BYTES]))
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytes:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_block(data, max_bytes)
    pieces: list[bytes] = []
    total = 0
    at = len(XERIAL_HEADER)
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if length < 0 or length > len(data) - at:
            raise CorruptMessage(f"snappy block of {length} bytes at byte {at} of {len(data)}")
        piece = _decompress_block(data[at : at + length], max_bytes)
        total += len(piece)
        if total > max_bytes:
            raise _too_large(max_bytes)
        pieces.append(piece)
        at += length
    return b"".join(pieces)


def _decompress_block(block: memoryview, max_bytes: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > max_bytes:
            raise _too_large(max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptMessage(f"compressed records are damaged: {error}") from error


def _too_large(max_bytes: int) -> MessageTooLarge:
    return MessageTooLarge(f"records take more than the {max_bytes} bytes allowed when decompressed")
