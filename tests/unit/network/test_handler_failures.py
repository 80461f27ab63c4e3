"""A handler that fails does not leak the memory of its request."""

import asyncio
from pathlib import Path

import pytest

from penstock.broker.registry import APIS
from penstock.network.large_request import PARTIAL_BYTES_MAX
from penstock.node import Address, Node, NodeSettings
from penstock.wire.frames import request_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def large_request() -> bytes:
    data = PartitionProduceData(index=0, records=bytes(4 * PARTIAL_BYTES_MAX))
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=[data])]
    )
    return b"".join(request_frame(request, 9, 1, "test"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_failing_handler_releases_the_memory_of_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in a handler closes its connection, and does not affect others."""

    async def main() -> None:
        here = Address(host="127.0.0.1", port=0)
        node = Node(NodeSettings(data_dir=tmp_path, listen=here, http=here))
        await node.start()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        produce = APIS[ApiKey.PRODUCE]
        broken = type(produce)(
            key=produce.key,
            request=produce.request,
            versions=produce.versions,
            flexible_from=produce.flexible_from,
            handler=fail,
        )
        monkeypatch.setitem(APIS, ApiKey.PRODUCE, broken)
        reader, writer = await asyncio.open_connection("127.0.0.1", node.listen.port)
        frame = large_request()
        writer.write(frame[:100])
        await writer.drain()
        writer.write(frame[100:])
        assert await asyncio.wait_for(reader.read(), 10) == b"", "the connection is closed"
        writer.close()
        assert node._listener.budget.held_bytes == 0
        await node.stop()

    asyncio.run(main())
