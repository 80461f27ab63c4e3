"""A worker of a queue: it receives, keeps what is in hand for as long as that takes, and says what became of it.

For the tasks of one event loop; sync/work.py and aio/work.py are loops on it.
"""

import asyncio
import logging
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
"""Of the visibility timeout. Two renewals may fail before the message is somebody else's."""

Fields = dict[str, Any]
"""Of a Received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """How a worker works."""

    visibility_s: int
    concurrency: int = 1
    """Messages in hand at a time."""
    backoff_s: float = 1.0
    backoff_max_s: float = 300.0
    limit: int | None = None
    idle_timeout_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "limit", "idle_timeout_s"):
            check_positive(name, getattr(self, name))

    @property
    def is_in_order(self) -> bool:
        """Whether asking for the next message says that the last one is finished."""
        return self.concurrency == 1

    def delay_s(self, receive_count: int) -> int:
        """How long a message that has failed is left alone: twice as long each time.

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


class Working:
    """What a worker has in hand. A message is in hand until it is deleted, given back or lost."""

    def __init__(self, calls: QueueCalls, plan: WorkPlan) -> None:
        self.calls = calls
        self.plan = plan
        self._ready: deque[Fields] = deque()
        """Received, and not handed out yet."""
        self._held: dict[str, float] = {}
        """What is in hand or ready, by receipt, and when it was last renewed."""
        self._counts: dict[str, int] = {}
        """How often each of them was received."""
        self._lost: dict[str, ApiError] = {}
        """What is not ours any more, and not heard of yet by who has it in hand."""
        self._taken = 0
        self._settled_s = 0.0
        self._is_closing = False
        self._receiving = asyncio.Lock()
        self._room = asyncio.Event()
        self._poll: asyncio.Task[list[Fields]] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._ending is not None and self._ending.done()

    def has(self, receipt: str) -> bool:
        return receipt in self._held or receipt in self._lost

    # -- taking

    async def take(self) -> Fields | None:
        """The next message, when there is one and a hand is free; None if the worker is to end."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with self._receiving:
            while not self._is_closing:
                if self._ready:
                    fields = self._ready.popleft()
                    self._taken += 1
                    return fields
                if self.plan.limit is not None and self._taken >= self.plan.limit:
                    return None
                free = self.plan.concurrency - len(self._held) - len(self._lost)
                if free < 1:
                    self._room.clear()
                    await self._room.wait()
                    continue
                idle_s = self._idle_left_s(max(began_s, self._settled_s))
                if not await self._receive(free, idle_s) and self._is_over(began_s):
                    return None
        return None

    def _idle_left_s(self, since_s: float) -> float:
        if self.plan.idle_timeout_s is None:
            return WAIT_S_MAX
        return max(0.0, since_s + self.plan.idle_timeout_s - asyncio.get_running_loop().time())

    def _is_over(self, began_s: float) -> bool:
        """Whether nothing has come for so long that nothing will."""
        return not self._held and self._idle_left_s(max(began_s, self._settled_s)) <= 0

    async def _receive(self, free: int, wait_s: float) -> bool:
        most = min(free, BATCH_MAX)
        if self.plan.limit is not None:
            most = min(most, self.plan.limit - self._taken)
        if self.calls.is_fifo:
            most = 1  # several at once may be of one message group, and must not be worked on side by side
        receiving = self.calls.receive(most, min(wait_s, WAIT_S_MAX), self.plan.visibility_s)
        self._poll = poll = asyncio.ensure_future(receiving)
        try:
            found = await poll
        except asyncio.CancelledError:
            if poll.done() and not poll.cancelled() and poll.exception() is None:
                self._have(poll.result())  # it came in the same moment: it is ours, and is given back at the end
            task = asyncio.current_task()
            if self._is_closing and task is not None and not task.cancelling():
                return False  # it was `stop` that has hung up
            raise
        finally:
            self._poll = None
        self._have(found)
        return bool(found)

    def _have(self, found: list[Fields]) -> None:
        now_s = asyncio.get_running_loop().time()
        for fields in found:
            self._held[fields["receipt"]] = now_s
            self._counts[fields["receipt"]] = fields["receive_count"]
            self._ready.append(fields)
        if found and self._keeper is None:
            self._keeper = asyncio.ensure_future(self._keep())

    # -- keeping

    async def _keep(self) -> None:
        """Renew what is in hand, well before its time is over."""
        every_s = self.plan.visibility_s * RENEW_AFTER
        loop = asyncio.get_running_loop()
        while True:
            oldest_s = min(self._held.values(), default=loop.time())
            await asyncio.sleep(max(0.05, oldest_s + every_s - loop.time()))
            now_s = loop.time()
            # Those that are due soon go along.
            due = [receipt for receipt, renewed_s in self._held.items() if now_s >= renewed_s + every_s / 2]
            if not due:
                continue
            try:
                lost = await self.calls.extend_all(due, self.plan.visibility_s)
            except ApiError as error:
                log.warning("jobs_not_extended queue=%s jobs=%d reason=%r", self.calls.name, len(due), str(error))
                continue
            for receipt in due:
                if receipt in self._held:
                    self._held[receipt] = now_s
            for receipt, reason in lost.items():
                self._lose(receipt, reason)

    def _lose(self, receipt: str, error: ApiError) -> None:
        if self._held.pop(receipt, None) is None:
            return  # it was finished meanwhile
        log.warning("job_lost queue=%s reason=%r", self.calls.name, str(error))
        ready = next((fields for fields in self._ready if fields["receipt"] == receipt), None)
        if ready is not None:
            self._ready.remove(ready)
            self._forget(receipt)
        else:
            self._lost[receipt] = error

    # -- what becomes of it

    async def finish(self, receipt: str) -> None:
        """It is done. JobLost if it is not ours any more."""
        self._let_go(receipt)
        await self.calls.delete(receipt)

    async def give_back(self, receipt: str, delay_s: int) -> None:
        """Others may have it, after a while. JobLost if it is finished, or its time is over in a FIFO queue."""
        self._let_go(receipt)
        await self.calls.change(receipt, delay_s)

    async def extend(self, receipt: str, timeout_s: int) -> None:
        """Keep it for so long; later renewals begin when that is nearly over."""
        if receipt in self._lost:
            raise self._lost[receipt]
        await self.calls.change(receipt, timeout_s)
        if receipt in self._held:
            now_s = asyncio.get_running_loop().time()
            self._held[receipt] = now_s + timeout_s - self.plan.visibility_s

    async def fail(self, receipt: str, error: BaseException) -> None:
        """Give it back after a failure, later each time; one that is lost is given back already."""
        count = self._counts.get(receipt, 1)
        delay_s = self.plan.delay_s(count)
        log.warning(
            "job_failed queue=%s receive_count=%d retry_in_s=%d error=%r", self.calls.name, count, delay_s, error
        )
        try:
            await self.give_back(receipt, delay_s)
        except ApiError as failure:
            log.warning("job_not_released queue=%s reason=%r", self.calls.name, str(failure))

    async def done(self, receipt: str) -> bool:
        """It is done, as far as that can still be said: whether it was ours."""
        try:
            await self.finish(receipt)
        except JobLost as error:
            log.warning("job_lost queue=%s reason=%r", self.calls.name, str(error))
            return False
        return True

    def _let_go(self, receipt: str) -> None:
        """From now on it is not renewed, and a hand is free."""
        self._held.pop(receipt, None)
        lost = self._lost.pop(receipt, None)
        self._settled_s = asyncio.get_running_loop().time()
        self._forget(receipt)
        if lost is not None:
            raise lost

    def _forget(self, receipt: str) -> None:
        self._counts.pop(receipt, None)
        self._room.set()

    # -- the end

    def stop(self) -> None:
        """Hand out nothing more. What is in hand stays there, and is still kept."""
        self._is_closing = True
        self._room.set()
        if self._poll is not None:
            self._poll.cancel()  # hanging up: the broker gives the message to somebody else

    async def close(self, *, is_failure: bool = False) -> None:
        """End, and give back all that is not finished: at once, or later if it was a failure.

        Whoever else closes it waits for the same end.
        """
        await asyncio.shield(self.begin_closing(is_failure=is_failure))

    def begin_closing(self, *, is_failure: bool) -> "asyncio.Task[None]":
        """The same, without waiting for it."""
        self.stop()
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end(is_failure))
        return self._ending

    async def _end(self, is_failure: bool) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        unseen = {fields["receipt"] for fields in self._ready}
        self._ready.clear()
        self._lost.clear()
        for receipt in list(self._held):
            delay_s = self.plan.delay_s(self._counts.get(receipt, 1)) if is_failure and receipt not in unseen else 0
            try:
                await self.give_back(receipt, delay_s)
            except ApiError as error:
                log.warning("job_not_released queue=%s reason=%r", self.calls.name, str(error))
