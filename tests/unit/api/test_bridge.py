"""Threads that work for tasks: one call after the other, even if tasks are cancelled."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from penstock.api.aio.bridge import WorkerThread, completed
from penstock.api.errors import Closed

PATIENCE_S = 90.0


def run(use: Callable[[WorkerThread], Awaitable[None]]) -> None:
    async def main() -> None:
        worker = WorkerThread("test")
        try:
            await use(worker)
        finally:
            worker.close(is_waiting=True)

    asyncio.run(main())


def test_a_call_of_a_cancelled_task_is_finished_before_the_next() -> None:
    done: list[str] = []
    go_on = threading.Event()

    def slowly() -> None:
        go_on.wait(PATIENCE_S)
        done.append("asked for by the cancelled")

    async def use(worker: WorkerThread) -> None:
        task = asyncio.create_task(worker.run(slowly))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        next_one = asyncio.create_task(worker.run(lambda: done.append("the next")))
        await asyncio.sleep(0)
        go_on.set()
        await next_one
        assert done == ["asked for by the cancelled", "the next"]

    run(use)


def test_the_error_of_a_cancelled_call_is_raised_by_the_next_call_only() -> None:
    go_on = threading.Event()

    def fail() -> None:
        go_on.wait(PATIENCE_S)
        raise ZeroDivisionError

    async def use(worker: WorkerThread) -> None:
        task = asyncio.create_task(worker.run(fail))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1)
        assert await worker.run(lambda: 2) == 2

    run(use)


def test_a_task_that_never_stops_asking_lets_others_have_their_turn() -> None:
    async def use(worker: WorkerThread) -> None:
        async def ask_for_ever() -> None:
            while True:
                await worker.run(lambda: None)

        busy = asyncio.create_task(ask_for_ever())
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            assert [await worker.run(lambda number=number: number) for number in range(3)] == [0, 1, 2]
            await worker.wait_for_cancelled()
        busy.cancel()
        with pytest.raises(asyncio.CancelledError):
            await busy

    run(use)


def test_nothing_more_is_done_when_it_is_closed() -> None:
    async def use(worker: WorkerThread) -> None:
        assert await worker.run(lambda: 1) == 1
        worker.close(is_waiting=True)
        with pytest.raises(Closed, match="subscribe again"):
            await worker.run(lambda: 2)

    run(use)


def test_a_cancelled_task_waits_for_calls_that_must_be_completed() -> None:
    async def main() -> None:
        is_done = False
        go_on = asyncio.Event()

        async def work() -> None:
            nonlocal is_done
            await go_on.wait()
            is_done = True

        task = asyncio.create_task(completed(asyncio.ensure_future(work())))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_done

    asyncio.run(main())
