"""Turns of those who filter views."""

import asyncio
from contextlib import suppress

from penstock.broker.views.turns import ScanTurns


async def _hold(turns: ScanTurns, begun: asyncio.Event, goes_on: asyncio.Event) -> None:
    async with turns:
        begun.set()
        await goes_on.wait()


def test_one_who_is_cancelled_while_it_waits_takes_nobodys_turn_away() -> None:
    async def scenario() -> list[str]:
        turns, seen = ScanTurns(asyncio.get_running_loop().time), []
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def interrupted() -> None:
            async with turns:
                begun.set()
                await asyncio.sleep(0)
                await turns.next()

        async def last() -> None:
            async with turns:
                seen.append("last")

        first = asyncio.create_task(interrupted())
        await begun.wait()
        begun.clear()
        holder = asyncio.create_task(_hold(turns, begun, goes_on))
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


def test_several_readers_have_their_turns_in_different_rounds_of_the_loop() -> None:
    """They come back from elsewhere in the same round, when nobody has a turn: none waits for another."""

    async def scenario() -> list[int]:
        turns, taken, rounds = ScanTurns(asyncio.get_running_loop().time), list[int](), 0

        async def others() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        async def reader() -> None:
            for _ in range(20):
                async with turns:
                    taken.append(rounds)
                    await turns.next()
                    taken.append(rounds)
                await asyncio.sleep(0)

        busy = asyncio.create_task(others())
        await asyncio.gather(*(reader() for _ in range(3)))
        busy.cancel()
        return taken

    taken = asyncio.run(scenario())
    assert len(taken) == 3 * 40
    assert len(set(taken)) == len(taken), "two had their turns in one round"
