"""Real nodes for tests that stop and move them, and a proxy that loses responses."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.node import Address, Node, NodeSettings

LOCAL = "127.0.0.1"


@asynccontextmanager
async def running_node(
    folder: Path,
    *,
    port: int = 0,
    node_id: int = 1,
    advertise: Address | None = None,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Node]:
    node = Node(
        NodeSettings(
            data_dir=folder,
            listen=Address(host=LOCAL, port=port),
            http=Address(host=LOCAL, port=0),
            node_id=node_id,
            advertise=advertise,
            settings=settings or {},
        )
    )
    await node.start()
    try:
        yield node
    finally:
        if node.ready:  # else the test has stopped it
            await node.stop()


class ForgetfulProxy:
    """Passes requests on to a broker; the answers to the next `lose` requests of one API it keeps to itself.

    It waits for such an answer, so that the broker has done its work, and then hangs up.
    """

    def __init__(self, api_key: int) -> None:
        self.port = 0
        self.target = 0
        self.lose = 0
        self.lost = 0
        self._api_key = api_key
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "ForgetfulProxy":
        self._server = await asyncio.start_server(self._serve, LOCAL, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_broker_reader, to_broker = await asyncio.open_connection(LOCAL, self.target)
        try:
            # One request at a time: enough for a producer, which has one batch in flight for each partition.
            while True:
                request = await _frame(reader)
                to_broker.write(request)
                answer = await _frame(to_broker_reader)
                if self.lose and int.from_bytes(request[4:6], "big") == self._api_key:
                    self.lose -= 1
                    self.lost += 1
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # either side hung up
        finally:
            to_broker.close()
            writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big"))
