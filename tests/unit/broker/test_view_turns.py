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
