"""A network between a store and its server, which loses messages on demand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """Passes bytes on, in the event loop of the test."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.loses_requests = False
        self.loses_answers = False
        self.is_down = False
        self.refused = 0
        """Connections that came while it was down."""
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Close every connection there is."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Lose nothing more. What was lost on a connection is lost, so that one ends."""
        self.loses_requests = self.loses_answers = self.is_down = False
        self.cut()

    def say(self, junk: bytes) -> None:
        """Tell the client something that no server ever said."""
        for writer in tuple(self._writers):
            writer.write(junk)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.is_down:
                self.refused += 1
                writer.transport.abort()
                return
            with contextlib.suppress(OSError):
                target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target)
                self._writers |= {writer, target_writer}
                await asyncio.gather(
                    self._pass(reader, target_writer, "loses_requests"),
                    self._pass(target_reader, writer, "loses_answers"),
                )
        finally:
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loss: str) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(65536):
                    if not getattr(self, loss):
                        writer.write(data)
                        await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
