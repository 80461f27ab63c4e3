"""Decodes and encodes messages with functions generated from the schemas, once per class and version.

The generators are in decoders.py and encoders.py. A hostile frame can only raise MalformedRequest here, or
TooManyElements if the caller sets `elements_max`: the caller then uses `decode_steps`.
"""

import struct
from typing import Any, Final, TypeVar

from penstock.foundation.errors import MalformedRequest
from penstock.foundation.steps import Steps
from penstock.wire.codegen import TooManyElements
from penstock.wire.decoders import Decoder, SlicedDecoder, make_decoder, make_sliced_decoder
from penstock.wire.encoders import UNBOUNDED, Encoder, SlicedEncoder, make_encoder, make_sliced_encoder
from penstock.wire.schema import Buffer, versioned

T = TypeVar("T")

ELEMENTS_INLINE_MAX: Final = 1_000
"""Maximum number of array elements and tagged fields of a message that is decoded or encoded at once; a larger
message takes several time slices of the event loop."""
ELEMENTS_MAX: Final = 100_000
"""Maximum number of array elements and tagged fields of a request; a larger request is rejected before decoding."""

_codecs: Final[dict[tuple[type, int], tuple[Decoder, Encoder]]] = {}
_sliced_decoders: Final[dict[tuple[type, int], SlicedDecoder]] = {}
_sliced_encoders: Final[dict[tuple[type, int], SlicedEncoder]] = {}


def decode(cls: type[T], version: int, buf: Buffer, at: int = 0, elements_max: int = UNBOUNDED) -> T:
    """Decodes a message of this class and version from `buf`, starting at position `at`. Ignores trailing bytes.

    Raises MalformedRequest, and TooManyElements above `elements_max` array elements and tagged fields.
    """
    try:
        decoder, _ = _codecs.get((cls, version)) or codec_of(cls, version)
        value, end = decoder(buf, at, elements_max)
    except (struct.error, IndexError, ValueError) as error:
        raise _malformed(cls, version, str(error)) from error
    if end > len(buf):
        raise _malformed(cls, version, f"it ends {end - len(buf)} bytes after its frame")
    found: T = value
    return found


def decode_steps(cls: type[T], version: int, buf: Buffer, at: int = 0, elements_max: int = ELEMENTS_MAX) -> Steps[T]:
    """Like `decode`, but a generator that yields regularly, so that other tasks can run. Raises MalformedRequest
    above `elements_max` array elements and tagged fields."""
    decoder = _sliced_decoders.get((cls, version))
    if decoder is None:
        decoder = make_sliced_decoder(cls, version, version >= versioned(cls).flexible_from)
        _sliced_decoders[cls, version] = decoder
    try:
        value, end = yield from decoder(buf, at, elements_max)
    except TooManyElements:
        raise _malformed(cls, version, f"it has more than {elements_max} array elements and tagged fields") from None
    except (struct.error, IndexError, ValueError) as error:
        raise _malformed(cls, version, str(error)) from error
    if end > len(buf):
        raise _malformed(cls, version, f"it ends {end - len(buf)} bytes after its frame")
    found: T = value
    return found


def _malformed(cls: type, version: int, reason: str) -> MalformedRequest:
    return MalformedRequest(f"{cls.__name__} v{version} cannot be decoded: {reason}")


def encode(message: Any, version: int) -> list[Buffer]:
    """Returns the encoded message as a list of byte parts, in order."""
    out: list[Buffer] = []
    codec_of(type(message), version)[1](message, out, UNBOUNDED)
    return out


def encode_steps(message: Any, version: int, out: list[Buffer]) -> Steps[None]:
    """Like `encode`, but a generator that yields regularly, so that other tasks can run. Appends the byte parts to
    `out`."""
    key = type(message), version
    encoder = _sliced_encoders.get(key)
    if encoder is None:
        encoder = make_sliced_encoder(*key, version >= versioned(key[0]).flexible_from)
        _sliced_encoders[key] = encoder
    yield from encoder(message, out, UNBOUNDED)


def encode_bytes(message: Any, version: int) -> bytes:
    return b"".join(encode(message, version))


def codec_of(cls: type, version: int) -> tuple[Decoder, Encoder]:
    """Returns the decoder and encoder of a message class for one version; generates them at first use."""
    found = _codecs.get((cls, version))
    if found is None:
        schema = versioned(cls)
        if version not in schema.versions:
            first, last = schema.versions[0], schema.versions[-1]
            raise ValueError(f"{cls.__name__} has versions {first} to {last}, asked for {version}")
        flexible = version >= schema.flexible_from
        found = make_decoder(cls, version, flexible), make_encoder(cls, version, flexible)
        _codecs[cls, version] = found
    return found
