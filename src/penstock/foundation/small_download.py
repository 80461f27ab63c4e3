"""Reads a small file from `https://…` or `file:///…`, with limits of size and time. Blocks."""

import ssl
import time
from email.message import Message
from http.client import HTTPException
from io import BufferedIOBase
from typing import IO, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from penstock.foundation.errors import PenstockError

TIMEOUT_S: Final = 10.0
_PART_BYTES: Final = 1 << 16
_ERROR_CHARS: Final = 200


class DownloadFailed(PenstockError):
    """A file could not be read; the message says why, without secrets."""


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects, which could lead to a server that is not trusted."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        return None


def download(
    url: str,
    *,
    authorities: str = "",
    form: bytes | None = None,
    authorization: str = "",
    bytes_max: int,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Returns the content of a file, or the answer to an HTTP form. Raises DownloadFailed.

    `authorities`: a PEM file with the authorities that the server is trusted by; empty for those of the system.
    """
    try:
        if url.startswith("file:"):
            with open(urlsplit(url).path, "rb") as file:
                return _limited(file, url, bytes_max, time.monotonic() + timeout_s)
        context = ssl.create_default_context(cafile=authorities or None)
        request = Request(url, data=form, headers={"Accept": "application/json"})
        if authorization:
            request.add_header("Authorization", authorization)
        opener = build_opener(HTTPSHandler(context=context), _NoRedirects, ProxyHandler())
        with opener.open(request, timeout=timeout_s) as answer:
            return _limited(answer, url, bytes_max, time.monotonic() + timeout_s)
    except HTTPError as error:
        with error:
            text = error.read(_ERROR_CHARS).decode(errors="replace")
        raise DownloadFailed(f"{url} answered {error.code} {error.reason}: {text!r}") from error
    except URLError as error:
        raise DownloadFailed(f"{url} cannot be read: {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise DownloadFailed(f"{url} cannot be read: {error}") from error


def _limited(file: BufferedIOBase, url: str, bytes_max: int, until_s: float) -> bytes:
    content = bytearray()
    while part := file.read1(min(_PART_BYTES, bytes_max + 1 - len(content))):
        content += part
        if len(content) > bytes_max:
            raise DownloadFailed(f"{url} has more than {bytes_max:,} bytes")
        if time.monotonic() > until_s:
            raise DownloadFailed(f"{url} is too slow")
    return bytes(content)
