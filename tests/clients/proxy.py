"""A proxy between clients and a broker that loses or delays requests and responses."""

import contextlib
import socket
import struct
import threading
import time
from queue import SimpleQueue
from typing import BinaryIO

from penstock.wire.keys import ApiKey

_LENGTH = struct.Struct(">i")
_API_KEY = struct.Struct(">h")


class LossyProxy:
    """Passes frames on. Some answers to a Produce it throws away, and closes their connection instead.

    Requests can be lost in the same way, and answers held back. The broker must advertise the proxy's address, so
    that clients come back to it.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.broker: tuple[str, int] | None = None
        self._cut_every = 0
        self.cuts = 0
        self._answers = 0
        self._dropped: frozenset[ApiKey] = frozenset()
        self._passing = threading.Event()  # set: answers are passed on
        self._passing.set()
        self._delay_s = 0.0
        self.drops = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closing = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._closing = True
        self._passing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            self._hang_up(connection)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # the listener was closed
            assert self.broker is not None
            try:
                broker = socket.create_connection(self.broker)
            except OSError:
                self._hang_up(client)  # as without the proxy: connection refused
                continue
            self._open |= {client, broker}
            asked: SimpleQueue[int] = SimpleQueue()
            for work in (self._pass_requests, self._pass_answers):
                thread = threading.Thread(target=work, args=(client, broker, asked), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_requests(self, client: socket.socket, broker: socket.socket, asked: SimpleQueue[int]) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as stream:
            while frame := _read_frame(stream):
                key = _API_KEY.unpack_from(frame, 4)[0]
                if key in self._dropped:
                    self.drops += 1
                    break
                asked.put(key)
                broker.sendall(frame)
        self._hang_up(broker)

    def _pass_answers(self, client: socket.socket, broker: socket.socket, asked: SimpleQueue[int]) -> None:
        with contextlib.suppress(OSError), broker.makefile("rb") as stream:
            while frame := _read_frame(stream):
                if asked.get() == ApiKey.PRODUCE and self._is_to_be_cut():
                    break
                self._passing.wait()
                time.sleep(self._delay_s)
                client.sendall(frame)
        self._hang_up(client)
        self._hang_up(broker)

    def lose_every(self, cut_every: int) -> None:
        """Lose the next answer to a Produce, and every so many after it; 0: none."""
        with self._lock:
            self._cut_every, self._answers = cut_every, 0

    def drop_requests(self, *keys: ApiKey) -> None:
        """From now on, close the connection of a client that sends such a request, which the broker never sees."""
        self._dropped = frozenset(keys)

    def hold_answers(self) -> None:
        """Holds all answers until `release_answers`: the broker has done the work, and no client learns it."""
        self._passing.clear()

    def release_answers(self) -> None:
        self._passing.set()

    def delay_answers(self, seconds: float) -> None:
        """Pass each answer on so much later, and those of one connection one after the other."""
        self._delay_s = seconds

    def _is_to_be_cut(self) -> bool:
        with self._lock:
            self._answers += 1
            if not self._cut_every or self._answers % self._cut_every != 1:
                return False
            self.cuts += 1
            return True

    def _hang_up(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()


def _read_frame(stream: BinaryIO) -> bytes:
    """A frame with its length; nothing at the end."""
    start = stream.read(4)
    return start + stream.read(_LENGTH.unpack(start)[0]) if len(start) == 4 else b""
