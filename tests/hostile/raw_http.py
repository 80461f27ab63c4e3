"""HTTP by hand: bytes that no client library would send, and the responses."""

import contextlib
import json
import socket
import threading
from typing import Any, NamedTuple

MIB = 1 << 20
PATIENCE_S = 90.0


class Answer(NamedTuple):
    status: int
    body: bytes


def exchange(address: str, data: bytes, answers: int = 1) -> list[Answer]:
    """Sends bytes, on a thread of their own, and reads so many answers, or fewer if the connection is closed."""
    host, _, port = address.rpartition(":")
    found: list[Answer] = []
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        sending = threading.Thread(target=_send, args=(connection, data), daemon=True)
        sending.start()
        with connection.makefile("rb") as stream:
            while len(found) < answers and (line := stream.readline()):
                length = 0
                while (header := stream.readline().strip()) != b"":
                    if header.startswith(b"content-length: "):
                        length = int(header.partition(b" ")[2])
                found.append(Answer(int(line.split()[1]), stream.read(length)))
        with contextlib.suppress(OSError):  # the broker was faster
            connection.shutdown(socket.SHUT_RDWR)
    sending.join()
    return found


def _send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # it was refused before all of it was sent
        connection.sendall(data)


def call(action: str, params: Any, *headers: str) -> bytes:
    """A request in JSON. `params` may be any bytes."""
    body = params if isinstance(params, bytes) else json.dumps(params).encode()
    lines = ["POST / HTTP/1.1", "Host: x", f"X-Amz-Target: AmazonSQS.{action}", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("latin-1") + body


def form(body: bytes) -> bytes:
    """A request of the Query protocol."""
    return b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode("latin-1")
