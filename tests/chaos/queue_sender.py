"""A process that sends messages: to a standard queue each once, to message groups until it is acknowledged."""

import asyncio
import itertools
import os
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from .child import Orders, note, options
from .queue_calls import Caller, NoAnswer, Refused, now_s, outcome_of

PAUSE_S: Final = 0.2
FOR_EVER_S: Final = 1e9


class Sender:
    """One of them, one call at a time."""

    def __init__(self, name: str, wanted: dict[str, Any], orders: Orders, rng: Random) -> None:
        self._name = name
        self._orders = orders
        self._rng = rng
        self._wanted = wanted
        self._poison: float = wanted["poison"]
        self._caller = Caller(wanted["http"], rng)

    async def send_all(self, queue: str) -> None:
        """Sends each message once: of one that was not answered, the outcome is unknown."""
        for number in itertools.count():
            await asyncio.sleep(self._rng.uniform(0, 2 * self._wanted["pause_s"]))
            if self._orders.stopping.is_set():
                return
            value, began_s = f"{self._kind()}/{self._name}.{number}", now_s()
            error: NoAnswer | Refused | None = None
            answer = {"MessageId": ""}
            try:
                answer = await self._caller.call("SendMessage", queue, MessageBody=value)
            except (NoAnswer, Refused) as raised:
                error = raised
                note("trouble", self._name, str(error)[:200])
                await asyncio.sleep(PAUSE_S)
            note("sent", queue, value, "", began_s, now_s(), outcome_of(error), answer["MessageId"])

    def _kind(self) -> str:
        """Most are worked off. Of the others, most become good after a while, and some never do."""
        chance = self._rng.random()
        if chance >= self._poison:
            return "ok"
        until_s = now_s() + self._rng.uniform(10, 60) if chance < self._poison * 0.6 else FOR_EVER_S
        return f"poison/{until_s:.1f}"

    async def send_group(self, queue: str, group: str) -> None:
        """Each message until it is answered, under the same deduplication id, as an SDK does."""
        for number in itertools.count():
            await asyncio.sleep(self._rng.uniform(0, 2 * self._wanted["group_pause_s"]))
            if self._orders.stopping.is_set():
                return
            value, began_s = f"ok/{group}.{number}", now_s()
            message = {"MessageBody": value, "MessageGroupId": group, "MessageDeduplicationId": value}
            message_id = await self._persist(queue, message)
            note("sent", queue, value, group, began_s, now_s(), "ok", message_id)

    async def _persist(self, queue: str, message: dict[str, str]) -> str:
        while True:
            try:
                answer = await self._caller.call("SendMessage", queue, **message)
            except (NoAnswer, Refused) as error:
                note("trouble", self._name, str(error)[:200])
                await asyncio.sleep(PAUSE_S)
            else:
                return str(answer["MessageId"])


async def main() -> None:
    wanted, orders = options(), Orders()
    rng = Random(f"{wanted['seed']} senders")
    note("began", os.getpid())

    def sender(name: str) -> Sender:
        return Sender(name, wanted, orders, Random(rng.random()))

    def numbered(counts: dict[str, int]) -> Iterator[tuple[str, int]]:
        return ((queue, number) for queue, count in counts.items() for number in range(count))

    await asyncio.gather(
        *(sender(f"s{number}").send_all(queue) for queue, number in numbered(wanted["standard"])),
        *(sender(f"g{number}").send_group(queue, f"g{number}") for queue, number in numbered(wanted["groups"])),
    )


if __name__ == "__main__":
    asyncio.run(main())
