"""Time slices: long work on the event loop, interrupted."""

import asyncio
from contextlib import suppress

from penstock.foundation.steps import Steps
from penstock.foundation.time_slices import TimeSlices


async def _hold(slices: TimeSlices, begun: asyncio.Event, goes_on: asyncio.Event) -> None:
    async with slices:
        begun.set()
        await goes_on.wait()


def test_a_task_cancelled_while_it_waits_releases_no_other_tasks_slice() -> None:
    async def scenario() -> list[str]:
        slices, seen = TimeSlices(asyncio.get_running_loop().time), []
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def interrupted() -> None:
            async with slices:
                begun.set()
                await asyncio.sleep(0)
                await slices.next()

        async def last() -> None:
            async with slices:
                seen.append("last")

        first = asyncio.create_task(interrupted())
        await begun.wait()
        begun.clear()
        holder = asyncio.create_task(_hold(slices, begun, goes_on))
        await begun.wait()  # it came in between, and the first waits to go on
        waiting = asyncio.create_task(last())
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        await asyncio.sleep(0)
        seen.append("held" if not waiting.done() else "two at a time")
        goes_on.set()
        await asyncio.gather(holder, waiting)
        return seen

    assert asyncio.run(scenario()) == ["held", "last"]


def test_two_tasks_never_have_their_slices_in_one_iteration_of_the_loop() -> None:
    async def scenario() -> list[int]:
        slices, taken, rounds = TimeSlices(asyncio.get_running_loop().time), list[int](), 0

        async def others() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        async def reader() -> None:
            for _ in range(20):
                async with slices:
                    taken.append(rounds)
                    await slices.next()
                    taken.append(rounds)
                await asyncio.sleep(0)

        busy = asyncio.create_task(others())
        await asyncio.gather(*(reader() for _ in range(3)))
        busy.cancel()
        return taken

    taken = asyncio.run(scenario())
    assert len(taken) == 3 * 40
    assert len(set(taken)) == len(taken), "two slices ran in one iteration of the loop"


def test_steps_are_interrupted_when_their_slice_is_over_and_return_their_result() -> None:
    async def scenario() -> tuple[int, int]:
        now_s = 0.0

        def clock() -> float:
            return now_s

        slices, other = TimeSlices(clock), 0

        async def count_iterations() -> None:
            nonlocal other
            while True:
                other += 1
                await asyncio.sleep(0)

        def steps() -> Steps[int]:
            nonlocal now_s
            for _ in range(10):
                now_s += 1.0  # each step takes longer than a slice
                yield
            return 42

        busy = asyncio.create_task(count_iterations())
        result = await slices.run(steps())
        busy.cancel()
        return result, other

    result, other = asyncio.run(scenario())
    assert result == 42
    assert other >= 10
