"""Kafka clients that announce large requests and send them slowly: they take no memory, and are closed."""

import asyncio
import contextlib
from pathlib import Path

import pytest
import uvloop

import penstock.node
from penstock.network import kafka_listener
from penstock.network.large_request import RATE_MIN, RATE_S
from penstock.node import Address, Node, NodeSettings
from penstock.wire.frames import LENGTH, request_frame
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MIB = 1 << 20
PATIENCE_S = 90.0
ANNOUNCED = LENGTH.pack(99 * MIB) + b"\0\0\0\x09" + bytes(100)
SLOW_SENDERS = 6


class Sender:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, node: Node) -> "Sender":
        return cls(*await asyncio.open_connection("127.0.0.1", node.listen.port))

    async def send(self, data: bytes, node: Node) -> None:
        """Returns when the listener has received it."""
        before = node._listener.budget.held_bytes
        self._writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            while node._listener.budget.held_bytes < before + len(data) - LENGTH.size:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def finish(self, data: bytes) -> bytes:
        """Sends the rest of a request; returns its response."""
        self._writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            (size,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
            return await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read() == b""

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionResetError):
            await self._writer.wait_closed()


def test_slow_senders_hold_no_memory_back_and_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is 1 MiB: with what the slow senders have announced, it would be used up 600 times."""
    now_s = 1000.0
    monkeypatch.setattr(kafka_listener, "perf_counter", lambda: now_s)
    monkeypatch.setattr(penstock.node, "IDLE_SWEEP_S", 0.02)
    produced = PartitionProduceData(index=0, records=bytes(MIB // 2))
    topic = TopicProduceData(name="orders", partition_data=[produced])
    frame = b"".join(request_frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9, 1, "test"))
    half = len(frame) // 2
    assert half > RATE_MIN * RATE_S

    async def main() -> None:
        nonlocal now_s
        here = Address(host="127.0.0.1", port=0)
        settings = {"queued.max.request.bytes": str(MIB)}
        node = Node(NodeSettings(data_dir=tmp_path, listen=here, http=here, settings=settings))
        await node.start()
        try:
            slow = [await Sender.open(node) for _ in range(SLOW_SENDERS)]
            steady, idle = await Sender.open(node), await Sender.open(node)
            for each in slow:
                await each.send(ANNOUNCED, node)
            assert len(await idle.finish(frame)) > LENGTH.size, "others are served meanwhile"
            await steady.send(frame[:100_000], node)
            node._listener.close_idle()  # begins to measure
            await steady.send(frame[100_000 : 100_000 + half], node)
            for each in slow:
                await each.send(b"x" * 100, node)
            now_s += RATE_S
            assert [await each.is_closed() for each in slow] == [True] * SLOW_SENDERS
            assert len(await steady.finish(frame[100_000 + half :])) > LENGTH.size
            assert len(await idle.finish(frame)) > LENGTH.size
            assert node._listener.budget.held_bytes == 0
            for each in (*slow, steady, idle):
                await each.close()
        finally:
            await node.stop()

    uvloop.run(main())
