"""Fuzzes everything that reads untrusted bytes: request headers, request and response decoders.

Not a part of `make test`. atheris is not in the dev extra, because it has wheels for some Pythons only:

    pip install atheris
    python tests/fuzz/fuzz_wire.py -max_total_time=600

Anything but an answer or MalformedRequest is a crash; so is an answer that we cannot write and read back, and one
that is read or written another way when that is cut into slices. It begins with seeds: counts that are not true, and
very many elements.
libFuzzer leaves the input of a crash in the file that it names; give that file as the argument to run it again.
"""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import atheris
from corpus import run

with atheris.instrument_imports(include=["penstock"]):
    import penstock.wire.messages
    from penstock.foundation.errors import MalformedRequest
    from penstock.foundation.steps import run_steps
    from penstock.wire.codec import ELEMENTS_MAX, codec_of, decode, decode_steps, encode_bytes, encode_steps
    from penstock.wire.codegen import TooManyElements
    from penstock.wire.frames import read_request_header, read_response, skip_tags
    from penstock.wire.schema import REQUESTS, RESPONSES, Buffer, message_of

    for _module in pkgutil.iter_modules(penstock.wire.messages.__path__):
        import_module(f"penstock.wire.messages.{_module.name}")

MESSAGES = [
    (cls, version)
    for registry in (REQUESTS, RESPONSES)
    for _, cls in sorted(registry.items())
    for version in message_of(cls).versions
]

for _cls, _version in MESSAGES:
    # The generated functions do not pass through the import hook, so that they are instrumented one by one.
    decoder, _ = codec_of(_cls, _version)
    atheris.instrument_func(decoder)


def fuzz(data: bytes) -> None:
    """The first two bytes choose the message (or the frame as a whole), the rest is what came in."""
    choice = int.from_bytes(data[:2], "big") % (len(MESSAGES) + 2)
    rest = data[2:]
    try:
        if choice == len(MESSAGES):
            fuzz_request(rest)
        elif choice == len(MESSAGES) + 1:
            fuzz_response(rest)
        else:
            fuzz_message(*MESSAGES[choice], rest)
    except MalformedRequest:
        return


def seeds() -> Iterator[bytes]:
    """For each message: counts of arrays that its bytes cannot hold, in both encodings, and thousands of elements."""
    for number in range(len(MESSAGES)):
        chosen = number.to_bytes(2, "big")
        yield chosen + b"\x7f\xff\xff\xff" * 4
        yield chosen + b"\xff\xff\xff\xff\x0f" * 4
        yield chosen + bytes(8) + b"\x7f\xff\xff\xff" + bytes(64)
        yield chosen + b"\x00\x00\x10\x00" * 2 + bytes(12_000)
        yield chosen + b"\x01\x81\x20" + b"\x01" * 12_000


def fuzz_message(cls: type, version: int, data: bytes) -> None:
    try:
        found = decode(cls, version, data, elements_max=ELEMENTS_MAX)
    except TooManyElements:
        found = None
    try:
        sliced = run_steps(decode_steps(cls, version, data))
    except MalformedRequest:
        assert found is None, "refused in slices only"
        raise
    assert sliced == found
    parts: list[Buffer] = []
    run_steps(encode_steps(found, version, parts))
    written = encode_bytes(found, version)
    assert b"".join(parts) == written
    assert decode(cls, version, written) == found
    assert encode_bytes(decode(cls, version, memoryview(data)), version) == written


def fuzz_request(frame: bytes) -> None:
    header = read_request_header(frame)
    assert header.body_at <= len(frame)
    cls = REQUESTS.get(header.api_key)  # type: ignore[call-overload]
    if cls is None or header.version not in message_of(cls).versions:
        return
    at = header.body_at
    if header.version >= message_of(cls).flexible_from:
        at = skip_tags(frame, at)
        assert at <= len(frame)
    fuzz_message(cls, header.version, frame[at:])


def fuzz_response(data: bytes) -> None:
    key = sorted(RESPONSES)[data[0] % len(RESPONSES)] if data else min(RESPONSES)
    versions = message_of(RESPONSES[key]).versions
    version = versions[data[1] % len(versions)] if len(data) > 1 else versions[-1]
    read_response(key, version, data[2:])


if __name__ == "__main__":
    run(fuzz, seeds())
