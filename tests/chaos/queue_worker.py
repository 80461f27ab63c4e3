"""A process of many workers, each of which receives messages over HTTP, one call at a time.

A message's body says how it is to be treated: `ok/…` is worked off, `poison/<until>/…` is refused until then.
"""

import asyncio
import itertools
import os
from random import Random
from typing import Any, Final

from .child import Orders, note, options
from .queue_calls import Caller, NoAnswer, Refused, now_s, outcome_of
from .queue_checker import Verdict

WAIT_S: Final = 2
ATTRIBUTES: Final = ["ApproximateReceiveCount", "MessageGroupId", "SequenceNumber"]
PAUSE_S: Final = 0.2
"""The pause after a failure, before another broker is asked."""


def is_refused(value: str) -> bool:
    """Whether a worker cannot do anything with it, now."""
    kind, _, rest = value.partition("/")
    return kind == "poison" and now_s() < float(rest.partition("/")[0])


class Held:
    """One message that a worker has."""

    def __init__(self, key: str, message: dict[str, Any]) -> None:
        self.key = key
        self.value: str = message["Body"]
        self.receipt: str = message["ReceiptHandle"]
        self.message_id: str = message["MessageId"]
        self.attributes: dict[str, str] = message["Attributes"]

    def line(self) -> list[object]:
        found = self.attributes
        count = int(found["ApproximateReceiveCount"])
        group, sequence = found.get("MessageGroupId", ""), found.get("SequenceNumber", "")
        return [self.key, self.value, self.message_id, count, group, sequence]


class Worker:
    """One of many: it receives, works, and says what became of it."""

    def __init__(self, name: str, queue: str, hold_s: int, addresses: list[str], orders: Orders, rng: Random) -> None:
        self._name = name
        self._queue = queue
        self._hold_s = hold_s
        self._orders = orders
        self._rng = rng
        self._caller = Caller(addresses, rng)
        self._numbers = itertools.count()

    async def run(self) -> None:
        await asyncio.sleep(self._rng.random())
        while not self._orders.stopping.is_set():
            if self._rng.random() < 0.02:
                soon_s = self._rng.uniform(0.01, WAIT_S)
                await self._caller.vanish("ReceiveMessage", self._queue, soon_s, **self._options())
                continue
            try:
                got = await self._receive()
                for message in got:
                    if not await self._work(message):
                        break  # messages behind it wait for it, as they must in a FIFO queue
            except (NoAnswer, Refused) as error:
                note("trouble", self._name, str(error)[:200])
                await asyncio.sleep(PAUSE_S)
        self._caller.hang_up()

    def _options(self) -> dict[str, Any]:
        return {
            "MaxNumberOfMessages": self._rng.choice((1, 1, 3, 10)),
            "WaitTimeSeconds": WAIT_S,
            "VisibilityTimeout": self._hold_s,
            "AttributeNames": ATTRIBUTES,
        }

    async def _receive(self) -> list[Held]:
        call, began_s = f"{self._name}.{next(self._numbers)}", now_s()
        answer = await self._caller.call("ReceiveMessage", self._queue, wait_s=WAIT_S, **self._options())
        ended_s = now_s()
        held = [Held(f"{call}.{at}", message) for at, message in enumerate(answer.get("Messages", ()))]
        if held:
            note("got", call, self._queue, began_s, ended_s, self._hold_s, [each.line() for each in held])
        return held

    async def _work(self, held: Held) -> bool:
        """Whether to go on with the next one."""
        chance = self._rng.random()
        await asyncio.sleep(self._rng.uniform(0, 0.1))
        if is_refused(held.value):
            if chance < 0.7:
                await self._change(held, 0)
            return False
        if chance < 0.01:
            await asyncio.sleep(self._hold_s + 1)  # it comes too late, and may find that it does
        elif chance < 0.04:
            await self._change(held, self._hold_s + 4)
            await asyncio.sleep(self._rng.uniform(0, self._hold_s))
        elif chance < 0.06:
            return False  # it forgets it
        return await self._say(held, Verdict.DELETE, "DeleteMessage")

    async def _change(self, held: Held, hold_s: int) -> bool:
        return await self._say(held, Verdict.CHANGE, "ChangeMessageVisibility", hold_s, VisibilityTimeout=hold_s)

    async def _say(
        self, held: Held, verdict: Verdict, action: str, hold_s: float = 0.0, **parameters: object
    ) -> bool:
        """Whether it was taken."""
        note("try", held.key, verdict, now_s(), hold_s)
        error: NoAnswer | Refused | None = None
        try:
            await self._caller.call(action, self._queue, ReceiptHandle=held.receipt, **parameters)
        except (NoAnswer, Refused) as raised:
            error = raised
            note("trouble", self._name, f"{action} {str(error)[:200]}")
        note("end", held.key, now_s(), outcome_of(error))
        return error is None


async def main() -> None:
    wanted, orders = options(), Orders()
    rng = Random(f"{wanted['seed']} {wanted['name']}")
    note("began", os.getpid())
    workers = [
        Worker(f"{wanted['name']}.{queue}.{number}", queue, hold_s, wanted["http"], orders, Random(rng.random()))
        for queue, (count, hold_s) in wanted["queues"].items()
        for number in range(count)
    ]
    await asyncio.gather(*(worker.run() for worker in workers))


if __name__ == "__main__":
    asyncio.run(main())
