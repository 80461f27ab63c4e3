"""Replies to clients that speak the wrong protocol on a port, with the address of the right port."""

from typing import Final

from penstock.wire.schema import Buffer

_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
"""First four bytes of an HTTP request, by method. As the size of a Kafka request, they would mean more than 1 GB."""
_TLS_HANDSHAKE: Final = b"\x16\x03"
TLS_HINT: Final = (
    "it looks like TLS, which this listener does not speak; set security.protocol=PLAINTEXT in the client, or "
    "connect to a listener with the protocol SSL"
)


def is_tls(start: Buffer) -> bool:
    """Returns whether `start` is the beginning of a TLS handshake.

    >>> is_tls(bytes.fromhex("1603010200010001fc0303"))
    True
    """
    return bytes(start[:2]) == _TLS_HANDSHAKE


def answer_http(start: Buffer, http: str) -> bytes | None:
    """Returns the Kafka port's reply to an HTTP request; None if `start` is not the beginning of an HTTP request.

    >>> answer_http(b"GET /healthz HTTP/1.1", "127.0.0.1:9324").decode().splitlines()[-1]
    'this port speaks the Kafka protocol; HTTP (queues, health, metrics) is at 127.0.0.1:9324'
    """
    if bytes(start[:4]) not in _METHODS:
        return None
    body = f"this port speaks the Kafka protocol; HTTP (queues, health, metrics) is at {http}\n".encode()
    head = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def explain_bytes(start: Buffer, kafka: str) -> str:
    """Returns a hint about bytes on the HTTP port that are not HTTP; an empty string if the protocol is unknown.

    >>> explain_bytes(bytes.fromhex("0000002300120004"), "127.0.0.1:9092")
    'it looks like the Kafka protocol, which is spoken at 127.0.0.1:9092'
    """
    if is_tls(start):
        return "it looks like TLS, which is not spoken here; use http://"
    # The size of a request, which is below 16 MB for the first one of every client.
    if bytes(start[:1]) == b"\0":
        return f"it looks like the Kafka protocol, which is spoken at {kafka}"
    return ""
