"""Coroutines that are started at once: with a task only if they wait, and cancelled wherever they wait."""

import asyncio

import pytest

from penstock.foundation.eager_task import start


async def test_a_coroutine_that_does_not_wait_needs_no_task() -> None:
    async def work() -> int:
        return 7

    assert start(work()) == 7


async def test_an_error_before_the_first_wait_is_raised_at_once() -> None:
    async def work() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        start(work())


async def test_a_coroutine_that_waits_goes_on_in_a_task() -> None:
    gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        found = await gate
        await asyncio.sleep(0)
        assert asyncio.current_task() is task
        return found

    task = start(work())
    assert isinstance(task, asyncio.Task)
    gate.set_result(7)
    assert await task == 7


async def test_a_bare_yield_is_a_wait() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    task = start(work())
    assert isinstance(task, asyncio.Task)
    assert await task == 7


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_cancelled_coroutine_is_told_where_it_waits_even_before_its_task_has_run(turns: int) -> None:
    seen: list[str] = []
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            await gate
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = start(work())
    assert isinstance(task, asyncio.Task)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]
    assert gate.cancelled()


async def test_an_error_after_a_wait_is_the_error_of_the_task() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    task = start(work())
    assert isinstance(task, asyncio.Task)
    with pytest.raises(ZeroDivisionError):
        await task
