"""Messages to bytes and back, by functions that are made from the schemas, once per class and version.

Making them is the work of decoders.py and encoders.py. Anything that a hostile frame can do surfaces here as
MalformedRequest.
"""

import struct
from typing import Any, Final, TypeVar

from penstock.foundation.errors import MalformedRequest
from penstock.wire.decoders import Decoder, make_decoder
from penstock.wire.encoders import Encoder, SlicedEncoder, make_encoder, make_sliced_encoder
from penstock.wire.schema import Buffer, versioned

T = TypeVar("T")

_codecs: Final[dict[tuple[type, int], tuple[Decoder, Encoder]]] = {}
_sliced: Final[dict[tuple[type, int], SlicedEncoder]] = {}


def decode(cls: type[T], version: int, buf: Buffer, at: int = 0) -> T:
    """The message of this class and version in `buf`, from `at` to its end. Trailing bytes are ignored."""
    try:
        decoder, _ = _codecs.get((cls, version)) or codec_of(cls, version)
        value, end = decoder(buf, at)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedRequest(f"{cls.__name__} v{version} cannot be decoded: {error}") from error
    if end > len(buf):
        raise MalformedRequest(f"{cls.__name__} v{version} ends {end - len(buf)} bytes after its frame")
    found: T = value
    return found


def encode(message: Any, version: int) -> list[Buffer]:
    """The parts of the message's bytes, in order."""
    out: list[Buffer] = []
    codec_of(type(message), version)[1](message, out)
    return out


def encode_bytes(message: Any, version: int) -> bytes:
    return b"".join(encode(message, version))


def codec_of(cls: type, version: int) -> tuple[Decoder, Encoder]:
    """The decoder and encoder of a message class for one version; made at first use."""
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


def sliced_encoder_of(cls: type, version: int) -> SlicedEncoder:
    """The encoder of a message class for one version that pauses now and then; made at first use."""
    found = _sliced.get((cls, version))
    if found is None:
        codec_of(cls, version)  # refuses a version that there is not
        found = _sliced[cls, version] = make_sliced_encoder(cls, version, version >= versioned(cls).flexible_from)
    return found
