"""The queue worker of the Python API: when it renews visibility timeouts."""

import asyncio
from typing import cast

import pytest

from penstock.api.core.queue_calls import QueueCalls
from penstock.api.core.queue_worker import QueueWorker, WorkPlan
from penstock.api.errors import ApiError

VISIBILITY_S = 3600
PATIENCE_S = 300


class RecordedCalls:
    """The calls of one queue, which has messages r1 and r2; renewals are recorded."""

    name = "jobs"
    is_fifo = False

    def __init__(self) -> None:
        self.renewed: asyncio.Queue[list[str]] = asyncio.Queue()
        self._numbers = iter((1, 2))

    async def receive(self, *_: object) -> list[dict[str, object]]:
        return [{"receipt": f"r{next(self._numbers)}", "receive_count": 1}]

    async def change(self, receipt: str, timeout_s: int) -> None:
        pass

    async def extend_all(self, receipts: list[str], timeout_s: int) -> dict[str, ApiError]:
        assert timeout_s == VISIBILITY_S
        await self.renewed.put(receipts)
        return {}

    async def release_all(self, receipts: list[str]) -> None:
        pass


@pytest.mark.parametrize("timeout", ["1s", "1h"])
async def test_a_timeout_that_a_handler_shortened_is_renewed_before_it_expires(timeout: str) -> None:
    calls = RecordedCalls()
    worker = QueueWorker(cast(QueueCalls, calls), WorkPlan(visibility_s=VISIBILITY_S))
    assert await worker.take() is not None
    await worker.extend("r1", timeout)
    if timeout == "1s":
        assert await asyncio.wait_for(calls.renewed.get(), PATIENCE_S) == ["r1"]
    else:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(calls.renewed.get(), 0.5)
    assert worker._renewal is not None
    worker._renewal.cancel()


async def test_a_handler_that_often_extends_one_message_does_not_keep_others_from_being_renewed() -> None:
    calls = RecordedCalls()
    worker = QueueWorker(cast(QueueCalls, calls), WorkPlan(visibility_s=VISIBILITY_S, concurrency=2))
    for _ in range(2):
        assert await worker.take() is not None

    async def extend_often() -> None:
        while True:
            await worker.extend("r2", "1h")
            await asyncio.sleep(0)

    handler = asyncio.ensure_future(extend_often())
    await worker.extend("r1", "1s")
    assert "r1" in await asyncio.wait_for(calls.renewed.get(), PATIENCE_S)
    handler.cancel()
    assert worker._renewal is not None
    worker._renewal.cancel()
