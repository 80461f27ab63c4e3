"""Queue worker: receives messages, renews their visibility timeout, and deletes or releases them.

Used by tasks of one event loop; the queue loops in sync/work.py and aio/work.py are built on QueueWorker.
"""

import asyncio
import contextlib
import logging
import math
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from penstock.api.core.durations import Duration, seconds_of
from penstock.api.core.queue_calls import QueueCalls, visibility_s
from penstock.api.core.queue_wire import VISIBILITY_S_MAX
from penstock.api.core.settings import check_positive
from penstock.api.errors import ApiError, JobLost
from penstock.client.sqs import BATCH_MAX, WAIT_S_MAX

log = logging.getLogger("penstock.api")

VISIBILITY: Final = "30s"
BACKOFF: Final = "1s"
BACKOFF_MAX: Final = "5m"
RENEW_AFTER: Final = 1 / 3
"""Fraction of the visibility timeout after which it is renewed: two renewals may fail before it expires."""

Fields = dict[str, Any]
"""The fields of a Received, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    visibility_s: int
    concurrency: int = 1
    """Maximum number of messages in flight."""
    backoff_s: float = 1.0
    backoff_max_s: float = 300.0
    limit: int | None = None
    idle_timeout_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "limit", "idle_timeout_s"):
            check_positive(name, getattr(self, name))

    @property
    def is_sequential(self) -> bool:
        """Whether requesting the next message deletes the previous message."""
        return self.concurrency == 1

    def delay_s(self, receive_count: int) -> int:
        """Returns the seconds before a failed message is redelivered; the delay doubles with each receive.

        >>> plan = WorkPlan(visibility_s=30)
        >>> [plan.delay_s(count) for count in (1, 2, 3, 99)]
        [1, 2, 4, 300]
        """
        doubled = self.backoff_s * 2.0 ** min(receive_count - 1, 60)
        return int(min(doubled, self.backoff_max_s, VISIBILITY_S_MAX))


def plan_of(
    visibility: Duration,
    concurrency: int,
    backoff: Duration,
    backoff_max: Duration,
    limit: int | None,
    idle_timeout_s: float | None,
) -> WorkPlan:
    return WorkPlan(
        visibility_s=visibility_s(visibility, least=1),
        concurrency=concurrency,
        backoff_s=seconds_of(backoff, "backoff"),
        backoff_max_s=seconds_of(backoff_max, "backoff_max"),
        limit=limit,
        idle_timeout_s=idle_timeout_s,
    )


class ReceivedJobActions:
    """Deletes, releases or extends messages from receive(). No worker renews their visibility timeout."""

    def __init__(self, calls: QueueCalls, visibility: Duration | None) -> None:
        self._calls = calls
        self._visibility = VISIBILITY if visibility is None else visibility
        self._finished: set[str] = set()

    async def delete(self, receipt: str) -> None:
        await self._calls.delete(receipt)
        self._finished.add(receipt)

    async def release(self, receipt: str, delay: Duration) -> None:
        await self._calls.change(receipt, visibility_s(delay))
        self._finished.add(receipt)

    async def extend(self, receipt: str, visibility: Duration | None) -> None:
        await self._calls.change(receipt, visibility_s(self._visibility if visibility is None else visibility))

    async def fail(self, receipt: str, error: BaseException) -> None:
        await self.release(receipt, 0)

    def has(self, receipt: str) -> bool:
        return receipt not in self._finished


class QueueWorker:
    """Receives and tracks the messages of one work() loop over a queue. A message is in flight until it is deleted
    or released, or until the broker refuses to renew its visibility timeout."""

    def __init__(self, calls: QueueCalls, plan: WorkPlan) -> None:
        self.calls = calls
        self.plan = plan
        self._ready: deque[Fields] = deque()
        """Messages that were received, and not yet delivered to the queue loop."""
        self._in_flight: dict[str, float] = {}
        """When the visibility timeout must be renewed, by receipt handle, for ready and delivered messages."""
        self._counts: dict[str, int] = {}
        """Receive count of each message in flight, by receipt handle."""
        self._lost: dict[str, ApiError] = {}
        """Errors of messages whose visibility timeout expired, by receipt handle, until they are raised."""
        self._delivered = 0
        self._finished_s = 0.0
        self._is_closing = False
        self._receiving = asyncio.Lock()
        self._slot_freed = asyncio.Event()
        self._renewal_changed = asyncio.Event()
        self._receive_task: asyncio.Task[list[Fields]] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._close_task: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._close_task is not None and self._close_task.done()

    def has(self, receipt: str) -> bool:
        return receipt in self._in_flight or receipt in self._lost

    # -- receiving

    async def take(self) -> Fields | None:
        """Returns the next message, once fewer than `concurrency` are in flight; None if the queue loop has ended."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with self._receiving:
            while not self._is_closing:
                if self._ready:
                    fields = self._ready.popleft()
                    self._delivered += 1
                    return fields
                if self.plan.limit is not None and self._delivered >= self.plan.limit:
                    return None
                free = self.plan.concurrency - len(self._in_flight) - len(self._lost)
                if free < 1:
                    self._slot_freed.clear()
                    await self._slot_freed.wait()
                    continue
                idle_s = self._idle_left_s(max(began_s, self._finished_s))
                if not await self._receive(free, idle_s) and self._is_over(began_s):
                    return None
        return None

    def _idle_left_s(self, since_s: float) -> float:
        if self.plan.idle_timeout_s is None:
            return WAIT_S_MAX
        return max(0.0, since_s + self.plan.idle_timeout_s - asyncio.get_running_loop().time())

    def _is_over(self, began_s: float) -> bool:
        return not self._in_flight and self._idle_left_s(max(began_s, self._finished_s)) <= 0

    async def _receive(self, free: int, wait_s: float) -> bool:
        most = min(free, BATCH_MAX)
        if self.plan.limit is not None:
            most = min(most, self.plan.limit - self._delivered)
        if self.calls.is_fifo:
            most = 1  # several may be of one message group, and must not be processed concurrently
        receiving = self.calls.receive(most, min(wait_s, WAIT_S_MAX), self.plan.visibility_s)
        self._receive_task = receive_task = asyncio.ensure_future(receiving)
        try:
            found = await receive_task
        except asyncio.CancelledError:
            if receive_task.done() and not receive_task.cancelled() and receive_task.exception() is None:
                self._add_received(receive_task.result())  # received just now: released at the end
            task = asyncio.current_task()
            if self._is_closing and task is not None and not task.cancelling():
                return False  # cancelled by `stop`
            raise
        finally:
            self._receive_task = None
        self._add_received(found)
        return bool(found)

    def _add_received(self, found: list[Fields]) -> None:
        renew_s = self._renewal_time(self.plan.visibility_s, asyncio.get_running_loop().time())
        for fields in found:
            self._in_flight[fields["receipt"]] = renew_s
            self._counts[fields["receipt"]] = fields["receive_count"]
            self._ready.append(fields)
        if found and self._renewal is None:
            self._renewal = asyncio.ensure_future(self._renew_visibility())

    # -- visibility

    async def _renew_visibility(self) -> None:
        """Renews the visibility timeout of messages in flight, well before the timeout expires."""
        every_s = self.plan.visibility_s * RENEW_AFTER
        loop = asyncio.get_running_loop()
        while True:
            next_s = min(self._in_flight.values(), default=loop.time() + every_s)
            self._renewal_changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._renewal_changed.wait(), max(0.05, next_s - loop.time()))
            now_s = loop.time()
            if now_s < min(self._in_flight.values(), default=math.inf):
                continue
            # Includes those that are due soon.
            due = [receipt for receipt, renew_s in self._in_flight.items() if now_s >= renew_s - every_s / 2]
            try:
                lost = await self.calls.extend_all(due, self.plan.visibility_s)
            except ApiError as error:
                log.warning("jobs_not_extended queue=%s jobs=%d reason=%r", self.calls.name, len(due), str(error))
                continue
            renew_s = self._renewal_time(self.plan.visibility_s, now_s)
            for receipt in due:
                if receipt in self._in_flight:
                    self._in_flight[receipt] = renew_s
            for receipt, reason in lost.items():
                self._mark_lost(receipt, reason)

    def _mark_lost(self, receipt: str, error: ApiError) -> None:
        if self._in_flight.pop(receipt, None) is None:
            return  # it was finished meanwhile
        log.warning("job_lost queue=%s reason=%r", self.calls.name, str(error))
        ready = next((fields for fields in self._ready if fields["receipt"] == receipt), None)
        if ready is not None:
            self._ready.remove(ready)
            self._forget(receipt)
        else:
            self._lost[receipt] = error

    # -- delete and release

    async def delete(self, receipt: str) -> None:
        """Deletes the message. Raises JobLost if its visibility timeout expired and it was received again."""
        self._untrack(receipt)
        await self.calls.delete(receipt)

    async def release(self, receipt: str, delay: Duration) -> None:
        """Makes the message visible after `delay`. Raises JobLost if deleted or, in a FIFO queue, timed out."""
        delay_s = visibility_s(delay)
        self._untrack(receipt)
        await self.calls.change(receipt, delay_s)

    async def extend(self, receipt: str, visibility: Duration | None) -> None:
        """Sets the message's visibility timeout, counted from now; None: the worker's own, `plan.visibility_s`."""
        timeout_s = self.plan.visibility_s if visibility is None else visibility_s(visibility)
        if receipt in self._lost:
            raise self._lost[receipt]
        await self.calls.change(receipt, timeout_s)
        if receipt in self._in_flight:
            self._in_flight[receipt] = self._renewal_time(timeout_s, asyncio.get_running_loop().time())
            self._renewal_changed.set()

    def _renewal_time(self, timeout_s: float, now_s: float) -> float:
        """Returns when to renew a visibility timeout that starts at `now_s`: after a third of it. A longer timeout
        than `plan.visibility_s` is renewed when two thirds of `plan.visibility_s` are left."""
        return now_s + max(timeout_s * RENEW_AFTER, timeout_s - self.plan.visibility_s * (1 - RENEW_AFTER))

    async def fail(self, receipt: str, error: BaseException) -> None:
        """Releases the message after a failure, with a backoff delay. If the release fails, only logs that error."""
        count = self._counts.get(receipt, 1)
        delay_s = self.plan.delay_s(count)
        log.warning(
            "job_failed queue=%s receive_count=%d retry_in_s=%d error=%r", self.calls.name, count, delay_s, error
        )
        try:
            await self.release(receipt, delay_s)
        except ApiError as failure:
            log.warning("job_not_released queue=%s reason=%r", self.calls.name, str(failure))

    async def done(self, receipt: str) -> bool:
        """Deletes the message. If `delete` raises JobLost (visibility timeout expired), logs it and returns False."""
        try:
            await self.delete(receipt)
        except JobLost as error:
            log.warning("job_lost queue=%s reason=%r", self.calls.name, str(error))
            return False
        return True

    def _untrack(self, receipt: str) -> None:
        """Stops renewing a message's visibility timeout. Raises the error of a renewal that the broker refused."""
        self._in_flight.pop(receipt, None)
        lost = self._lost.pop(receipt, None)
        self._finished_s = asyncio.get_running_loop().time()
        self._forget(receipt)
        if lost is not None:
            raise lost

    def _forget(self, receipt: str) -> None:
        self._counts.pop(receipt, None)
        self._slot_freed.set()

    # -- closing

    def stop(self) -> None:
        """Stops delivering messages. The visibility timeout of messages in flight is still renewed."""
        self._is_closing = True
        self._slot_freed.set()
        if self._receive_task is not None:
            self._receive_task.cancel()  # closes the connection: the broker delivers the message elsewhere

    async def close(self, *, is_failure: bool = False) -> None:
        """Ends the worker and releases all unfinished messages, with a backoff delay if `is_failure`."""
        await asyncio.shield(self.begin_closing(is_failure=is_failure))

    def begin_closing(self, *, is_failure: bool) -> "asyncio.Task[None]":
        """Starts the task that closes the worker and releases its messages, with a backoff delay if `is_failure`."""
        self.stop()
        if self._close_task is None:
            self._close_task = asyncio.ensure_future(self._run_close(is_failure))
        return self._close_task

    async def _run_close(self, is_failure: bool) -> None:
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.cancel()
            await asyncio.wait([renewal])
        unseen = {fields["receipt"] for fields in self._ready}
        self._ready.clear()
        self._lost.clear()
        for receipt in list(self._in_flight):
            delay_s = self.plan.delay_s(self._counts.get(receipt, 1)) if is_failure and receipt not in unseen else 0
            try:
                await self.release(receipt, delay_s)
            except ApiError as error:
                log.warning("job_not_released queue=%s reason=%r", self.calls.name, str(error))
