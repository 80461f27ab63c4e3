"""The five codecs of record batches. Decompression is bounded: a small batch may expand to a huge body."""

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
# starts like the header (it would begin with a copy of bytes that do not exist yet), so both can be distinguished.
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES = 32 << 10

_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_FRAME_BYTES_MIN: Final = 8
_ZSTD_RLE: Final = 1
CHUNK_BYTES: Final = 16 << 10
STEP_BYTES: Final = 1 << 20
"""Maximum output, in bytes, of one decompressor call, so that memory use follows the actual output size."""


class Codec(IntEnum):
    """A compression codec, by its number in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_BY_BITS: Final = tuple(Codec)


def codec_of(attributes: int) -> Codec:
    """Returns the codec that a batch's attributes name, e.g. `codec_of(0x14) is Codec.ZSTD`."""
    bits = attributes & CODEC_MASK
    if bits >= len(_BY_BITS):
        raise UnsupportedCompression(f"compression type {bits} is unknown: 0 to {_BY_BITS[-1]} are supported")
    return _BY_BITS[bits]


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compresses the records of a batch. `level` depends on the codec (snappy has none); None: default level."""
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
    """Decompresses the records of a batch. Raises MessageTooLarge above `max_bytes`, CorruptMessage if damaged."""
    match codec:
        case Codec.NONE:
            if len(data) > max_bytes:
                raise _too_large(max_bytes)
            return bytes(data)
        case Codec.GZIP:
            return _inflate(_gzip_stream, data, max_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), max_bytes)
        case Codec.LZ4:
            return _inflate(lz4.frame.LZ4FrameDecompressor, data, max_bytes)
        case Codec.ZSTD:
            return _decompress_zstd(data, max_bytes)


def decompress_zstd_into(data: Buffer, target: memoryview) -> int | None:
    """Decompresses into `target`; returns the number of bytes, or None if the data does not fit or is damaged.

    Much faster than `decompress`, which works in small steps; call `decompress` to get an error message.
    """
    try:
        return int(cramjam.zstd.decompress_into(data, target))
    except cramjam.DecompressionError:
        return None


class _Stream(Protocol):
    """A decompressor of one gzip member or LZ4 frame."""

    def decompress(self, data: Buffer, max_length: int) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...


class _GzipStream:
    """Wraps zlib's decompressor so that it buffers unconsumed input for the next call, as LZ4's does."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(GZIP_WBITS)

    def decompress(self, data: Buffer, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail or data, max_length)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data


_gzip_stream: Final = _GzipStream


def _inflate(new_stream: Callable[[], _Stream], data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    pieces: list[bytes] = []
    total = 0
    stream = new_stream()
    try:
        # In small chunks: the rest of a chunk after each member is copied, and members may be tiny.
        for at in range(0, len(view), CHUNK_BYTES):
            left: Buffer = view[at : at + CHUNK_BYTES]
            while True:
                if stream.eof:  # members and frames may follow each other
                    stream = new_stream()
                wanted = min(STEP_BYTES, max_bytes + 1 - total)
                piece = stream.decompress(left, wanted)
                total += len(piece)
                if total > max_bytes:
                    raise _too_large(max_bytes)
                pieces.append(piece)
                left = (stream.unused_data or b"") if stream.eof else b""
                if not left and (stream.eof or len(piece) < wanted):
                    break
    except (zlib.error, RuntimeError) as error:  # lz4 raises RuntimeError
        raise CorruptMessage(f"compressed records are damaged: {error}") from error
    if not stream.eof:
        raise CorruptMessage(f"compressed records are cut off after {len(view)} bytes")
    return b"".join(pieces)


def _decompress_zstd(data: Buffer, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while piece := reader.read(min(STEP_BYTES, max_bytes + 1 - total)):
                total += len(piece)
                if total > max_bytes:
                    raise _too_large(max_bytes)
                pieces.append(piece)
        is_whole = _ends_with_a_frame(memoryview(data))
    except zstandard.ZstdError as error:
        raise CorruptMessage(f"compressed records are damaged: {error}") from error
    if not is_whole:
        raise CorruptMessage(f"compressed records are cut off after {len(data)} bytes")
    return b"".join(pieces)


def _ends_with_a_frame(data: memoryview) -> bool:
    """Returns whether the last zstd frame is complete: the stream reader does not report a truncated frame."""
    at = 0
    while len(data) - at >= _ZSTD_FRAME_BYTES_MIN:
        if int.from_bytes(data[at : at + 4], "little") & ~0xF == _ZSTD_SKIPPABLE:
            at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            continue
        has_checksum = zstandard.get_frame_parameters(data[at:]).has_checksum
        at += zstandard.frame_header_size(data[at:])
        is_last = False
        while not is_last and len(data) - at >= 3:
            # RFC 8878, 3.1.1.2: one bit for the last block, two for its type, 21 for its size.
            block = int.from_bytes(data[at : at + 3], "little")
            is_last = bool(block & 1)
            at += 3 + (1 if block >> 1 & 3 == _ZSTD_RLE else block >> 3)
        if not is_last:
            return False
        at += 4 if has_checksum else 0
    return 0 < at == len(data)


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
