"""Messages to publish or send, read from arguments, standard input, or files."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

CHUNK_BYTES: Final = 256 << 10
CHUNKS_MAX: Final = 4
"""Maximum number of chunks that are read but not sent yet: bounds memory if the disk is faster than the network."""
MESSAGE_BYTES_MAX: Final = 100 << 20
"""Size, in bytes, of the largest message that brokers accept."""


class Message(NamedTuple):
    key: bytes | None
    value: bytes


async def read_lines(fd: int, name: str) -> AsyncIterator[bytes]:
    """Yields the lines of a file, pipe or terminal as they arrive, without line ends. Reads on a daemon thread
    that is never joined: reading a terminal may block for ever, and Ctrl-C must still end the command."""
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
            except RuntimeError:  # the loop is closed: the command has ended
                return
            if not found or isinstance(found, OSError):
                return

    threading.Thread(target=read, name="lines", daemon=True).start()
    rest = b""
    while True:
        chunk = await chunks.get()
        room.release()
        if isinstance(chunk, OSError):
            raise click.ClickException(f"cannot read {name}: {chunk.strerror}")
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > MESSAGE_BYTES_MAX:
            raise click.ClickException(
                f"{name} has a line of more than {MESSAGE_BYTES_MAX} bytes, the largest message that brokers accept"
            )
    if rest:
        yield rest


async def read_messages(
    messages: Sequence[str], files: Sequence[Path], *, lines: bool, key: bytes | None, separator: bytes | None
) -> AsyncIterator[Message]:
    """Yields the messages of the arguments (`-`: each line of standard input), then of the files. `lines`: each
    line of a file is a message. `separator` splits key and value; without it, `key` is the key of all messages."""
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
    """Yields pairs of a message value and a flag: True for an argument or a line, False for a whole file."""
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
                f"{path} has {size} bytes; brokers accept at most {MESSAGE_BYTES_MAX} per message; --lines sends "
                "it line by line"
            )
        return path.read_bytes()
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {error.strerror}") from error
