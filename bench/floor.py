"""The floor: the least that any Python broker must do, in the design of DESIGN §10.

It frames, checks a CRC and `pwrite`s; or frames, computes a place and sends what is there. Everything else that a
broker does (topics, versions, indexes, errors, metrics) is left out: where things are in a request is known
beforehand. Sockets, buffers and writes are handled as in penstock/network/.
"""

import asyncio
import mmap
import os
import struct
import sys
from pathlib import Path
from typing import Final, cast

import uvloop
from crc32c import crc32c

from bench.layout import Layout

PRODUCE: Final = 0
RECEIVE_BYTES: Final = 256 << 10
WRITE_BYTES_HIGH: Final = 1 << 20
JOIN_BYTES_MAX: Final = 64 << 10
MAP_BYTES_MIN: Final = 64 << 10
CRC_AT: Final = 17  # and what it covers begins at 21

_START: Final = struct.Struct(">hhi")  # API key, version, correlation id
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")


class Floor:
    """What all connections share: one file."""

    def __init__(self, layout: Layout, path: str) -> None:
        self.layout = layout
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.size = 0
        self.end_offset = 0
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.produce_answer = bytearray.fromhex(layout.produce_answer)
        self.fetch_head = bytearray.fromhex(layout.fetch_head)
        self.fetch_tail = bytes.fromhex(layout.fetch_tail)
        self._map: mmap.mmap | None = None

    def produce(self, frame: memoryview, correlation_id: int, out: list[bytes | memoryview]) -> None:
        layout = self.layout
        batch = frame[layout.batch_at : layout.batch_at + layout.batch_bytes]
        if crc32c(batch[CRC_AT + 4 :]) != _UINT32.unpack_from(batch, CRC_AT)[0]:
            raise ValueError("a batch with a wrong CRC")
        _INT64.pack_into(batch, 0, self.end_offset)
        if os.pwrite(self.fd, batch, self.size) != layout.batch_bytes:
            raise OSError("a short write")
        answer = self.produce_answer
        _INT32.pack_into(answer, 4, correlation_id)
        _INT64.pack_into(answer, layout.base_offset_at, self.end_offset)
        out.append(bytes(answer))
        self.size += layout.batch_bytes
        self.end_offset += layout.batch_records

    def fetch(self, frame: memoryview, correlation_id: int, out: list[bytes | memoryview]) -> None:
        layout = self.layout
        count = layout.batch_bytes
        (offset,) = _INT64.unpack_from(frame, layout.fetch_offset_at)
        at = offset // layout.batch_records * count
        _INT32.pack_into(self.fetch_head, 4, correlation_id)
        data = os.pread(self.fd, count, at) if count < MAP_BYTES_MIN else self._mapped()[at : at + count]
        out += (bytes(self.fetch_head), data, self.fetch_tail)

    def _mapped(self) -> memoryview:
        if self._map is None or len(self._map) < self.size:
            self._map = mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ)
        return memoryview(self._map)


class Connection(asyncio.BufferedProtocol):
    """One client."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._frame: memoryview | None = None
        self._have = 0
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return self._frame[self._have :]
        shared = self._floor.receive_buffer
        shared[: len(self._rest)] = self._rest
        return shared[len(self._rest) :]

    def buffer_updated(self, count: int) -> None:
        out: list[bytes | memoryview] = []
        if self._frame is not None:
            self._have += count
            if self._have < len(self._frame):
                return
            frame, self._frame = self._frame, None
            self._handle(frame, out)
        else:
            self._consume(self._floor.receive_buffer[: count + len(self._rest)], out)
        if sum(map(len, out)) > JOIN_BYTES_MAX:
            self._transport.writelines(out)
        elif out:
            self._transport.write(b"".join(out))

    def _consume(self, data: memoryview, out: list[bytes | memoryview]) -> None:
        at, end = 0, len(data)
        self._rest = b""
        while end - at >= 4:
            (size,) = _INT32.unpack_from(data, at)
            if end - at - 4 < size:
                self._frame = memoryview(bytearray(size))
                self._have = end - at - 4
                self._frame[: self._have] = data[at + 4 :]
                return
            self._handle(data[at + 4 : at + 4 + size], out)
            at += 4 + size
        self._rest = bytes(data[at:])

    def _handle(self, frame: memoryview, out: list[bytes | memoryview]) -> None:
        api_key, _, correlation_id = _START.unpack_from(frame, 0)
        if api_key == PRODUCE:
            self._floor.produce(frame, correlation_id, out)
        else:
            self._floor.fetch(frame, correlation_id, out)


async def main(layout: str, port: str, file: str) -> None:
    floor = Floor(Layout.load(Path(layout)), file)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(floor), "127.0.0.1", int(port), backlog=1024)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
