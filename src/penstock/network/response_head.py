"""The head of an HTTP response, with cached status, date and content-type lines."""

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from penstock.foundation.http import HttpResponse

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def head(response: HttpResponse, connection: bytes) -> bytes:
    """Returns the status line and headers of a response. `connection`: what `connection_line` returned."""
    return b"%s%s%s%s%scontent-length: %d\r\n\r\n" % (
        _status_line(response.status),
        _date_line(int(time.time())),
        _type_line(response.content_type),
        response.headers,
        connection,
        len(response.body),
    )


def connection_line(*, keeps_alive: bool, is_old: bool) -> bytes:
    """Returns the Connection header; empty for an HTTP/1.1 connection that stays open. `is_old`: HTTP/1.0 request."""
    if keeps_alive:
        return b"connection: keep-alive\r\n" if is_old else b""
    return b"connection: close\r\n"


@lru_cache(maxsize=64)
def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}\r\n".encode()


@lru_cache(maxsize=64)
def _type_line(content_type: str) -> bytes:
    return f"content-type: {content_type}\r\n".encode("latin-1")


@lru_cache(maxsize=1)
def _date_line(now_s: int) -> bytes:
    return f"date: {formatdate(now_s, usegmt=True)}\r\n".encode()
