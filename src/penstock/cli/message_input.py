"""Where the messages to publish come from: arguments, lines of a stream, whole files."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

CHUNK_BYTES: Final = 256 << 10
CHUNKS_MAX: Final = 4
"""Chunks that are read ahead; a fast disk must not fill the memory."""
MESSAGE_BYTES_MAX: Final = 100 << 20
"""No broker takes a larger one."""


class Message(NamedTuple):
    key: bytes | None
    value: bytes


async def read_lines(fd: int, name: str) -> AsyncIterator[bytes]:
    """The lines of a file, pipe or terminal, without their ends, as they come.

    Read on a thread of its own that nothing waits for: a terminal may stay silent for ever, and an interrupted
    command must end all the same.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_MAX)

    def read() -> None:
        while room.acquire():
            try:
                found: bytes | OSError = os.read(fd, CHUNK_BYTES)
            except OSError as error:
                found = error
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, found)
            except RuntimeError:  # the loop is closed: nobody wants it any more
                return
            if not found or isinstance(found, OSError):
                return

    threading.Thread(target=read, name="lines", daemon=True).start()
    rest = b""
    while True:
        chunk = await chunks.get()
        room.release()
        if isinstance(chunk, OSError):
            raise click.ClickException(f"{name} cannot be read: {chunk.strerror}")
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > MESSAGE_BYTES_MAX:
            raise click.ClickException(
                f"{name} has a line of more than {MESSAGE_BYTES_MAX} bytes; no broker takes that"
            )
    if rest:
        yield rest


async def read_messages(
    messages: Sequence[str], files: Sequence[Path], *, lines: bool, key: bytes | None, separator: bytes | None
) -> AsyncIterator[Message]:
    """Every message, in order: from the arguments (`-`: lines of standard input), then from the files."""
    number = 0
    async for value, is_text in _read_values(messages, files, lines):
        number += 1
        if separator is not None and is_text:
            own_key, found, value = value.partition(separator)
            if not found:
                raise click.ClickException(
                    f"message {number} has no {separator.decode(errors='replace')!r} between key and value: "
                    f"{own_key[:60].decode(errors='replace')!r}"
                )
            yield Message(own_key, value)
        else:
            yield Message(key, value)


async def _read_values(
    messages: Sequence[str], files: Sequence[Path], lines: bool
) -> AsyncIterator[tuple[bytes, bool]]:
    """Values, and whether each is a line or an argument rather than a whole file."""
    for text in messages or ([] if files else ["-"]):
        if text != "-":
            yield os.fsencode(text), True
            continue
        async for line in read_lines(0, "standard input"):
            yield line, True
    for path in files:
        if lines:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                async for line in read_lines(fd, str(path)):
                    yield line, True
            finally:
                os.close(fd)
        else:
            yield _read_whole(path), False


def _read_whole(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MESSAGE_BYTES_MAX:
            raise click.ClickException(
                f"{path} has {size} bytes, more than any broker takes as one message; --lines sends line by line"
            )
        return path.read_bytes()
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from error
