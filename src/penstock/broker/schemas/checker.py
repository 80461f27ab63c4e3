"""Runs jobs in the process that parses and compares schemas: starts it when needed, and stops it when idle."""

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

from penstock.broker.schemas.check_worker import LENGTH
from penstock.foundation.errors import PenstockError
from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.registry.check_codec import Result, decode_result, encode_job
from penstock.schemas.registry.checks import CompareJob, ParseJob
from penstock.schemas.registry.errors import OperationTimedOut, TooManyRequests

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 256
"""Maximum number of jobs that wait; more are refused."""
TIMEOUT_S: Final = 60.0
"""Seconds after which a process that does not answer is killed. It limits its CPU time itself, to far less."""
IDLE_S: Final = 300.0
"""Seconds without a job after which the process is stopped."""
_ANSWER_BYTES_MAX: Final = 256 << 20


class CheckFailed(PenstockError):
    """The process ended during a job."""


class SchemaChecker:
    """Runs one job at a time, in order of arrival, in a process of its own."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._stop_idle: asyncio.TimerHandle | None = None
        self.jobs = 0
        """Number of jobs run so far."""

    async def run(self, job: ParseJob | CompareJob) -> Result:
        """Returns the result of a job. Raises InvalidSchema if the schema cannot be used or is too expensive, and
        RegistryError if too many jobs wait or the process fails."""
        if self._waiting >= WAITING_MAX:
            raise TooManyRequests(f"{WAITING_MAX} schemas wait to be checked; try again later")
        self._waiting += 1
        try:
            async with self._lock:
                return await self._run(encode_job(job))
        finally:
            self._waiting -= 1

    async def _run(self, data: bytes) -> Result:
        self.jobs += 1
        if self._stop_idle is not None:
            self._stop_idle.cancel()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._exchange(data)
        except TimeoutError:
            await self.close()
            raise OperationTimedOut(f"checking the schema took more than {TIMEOUT_S:g} s; try again later") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            # Killed, or out of memory where Python cannot raise an error: most probably because of the schema.
            await self.close()
            logger.warning("schema_checker_ended bytes=%d", len(data))
            raise InvalidSchema("the schema could not be checked: the process that checks schemas ended") from None
        except BaseException:  # cancelled: an answer may still come, and would be taken for that of the next job
            await self.close()
            raise
        self._stop_idle = asyncio.get_running_loop().call_later(IDLE_S, self._kill)
        return decode_result(answer)

    async def _exchange(self, data: bytes) -> bytes:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "penstock.broker.schemas.check_worker", stdin=PIPE, stdout=PIPE
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(LENGTH.pack(len(data)) + data)
        await process.stdin.drain()
        (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        if size > _ANSWER_BYTES_MAX:
            raise ConnectionError(f"an answer of {size} bytes")
        return await process.stdout.readexactly(size)

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        """Stops the process and waits for its end."""
        if self._stop_idle is not None:
            self._stop_idle.cancel()
            self._stop_idle = None
        self._kill()
        process, self._process = self._process, None
        if process is not None:
            await process.wait()
