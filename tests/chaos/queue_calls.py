"""A minimal client of the SQS API: JSON over one connection, which may break at any moment."""

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from .checker import Outcome

CALL_S: Final = 12.0
"""For how long an answer is waited for, beyond what a receive wants to wait itself."""


class NoAnswer(Exception):
    """The outcome is unknown."""


class Refused(Exception):
    """It was not done: the broker has said so."""


def outcome_of(error: NoAnswer | Refused | None) -> Outcome:
    if error is None:
        return Outcome.OK
    return Outcome.FAIL if isinstance(error, Refused) else Outcome.INFO


class Caller:
    """A client of whichever broker answers: after every failure it turns to another one."""

    def __init__(self, addresses: Sequence[str], rng: Random) -> None:
        self._addresses = addresses
        self._rng = rng
        self._address = rng.choice(addresses)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, action: str, queue: str, *, wait_s: float = 0.0, **parameters: Any) -> dict[str, Any]:
        """The answer. Raises NoAnswer, Refused."""
        try:
            async with asyncio.timeout(CALL_S + wait_s):
                status, answer = await self._exchange(action, self._about(queue) | parameters)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            self.hang_up()
            raise NoAnswer(f"{type(error).__name__} {error}") from error
        if status == 200:
            return answer
        if status >= 500:
            self.hang_up()
            raise NoAnswer(f"{status} {answer}")
        raise Refused(f"{status} {answer}")

    async def vanish(self, action: str, queue: str, after_s: float, **parameters: Any) -> None:
        """Ask, and be gone before the answer is read, whether it has come or not."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(after_s):
                await self._exchange(action, self._about(queue) | parameters, is_read=False)
                await asyncio.sleep(after_s)
        self.hang_up()

    def hang_up(self) -> None:
        """At once, without a word; the next call is made to another broker."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
        self._address = self._rng.choice(self._addresses)

    def _about(self, queue: str) -> dict[str, Any]:
        return {"QueueUrl": f"http://{self._address}/000000000000/{queue}"}

    async def _exchange(
        self, action: str, parameters: dict[str, Any], *, is_read: bool = True
    ) -> tuple[int, dict[str, Any]]:
        if self._streams is None:
            host, _, port = self._address.rpartition(":")
            self._streams = await asyncio.open_connection(host, int(port), limit=1 << 22)
        reader, writer = self._streams
        body = json.dumps(parameters).encode()
        head = (
            f"POST / HTTP/1.1\r\nHost: {self._address}\r\nContent-Type: application/x-amz-json-1.0\r\n"
            f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        if not is_read:
            return 0, {}
        lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        sizes = [int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")]
        answer = await reader.readexactly(sizes[0])
        return int(lines[0].split()[1]), json.loads(answer) if answer.startswith(b"{") else {"text": answer.decode()}


def now_s() -> float:
    """The clock of all processes of the machine."""
    return time.monotonic()
