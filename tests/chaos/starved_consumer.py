"""A process that reads 100 messages with the Python API, at the lowest priority of a busy machine.

Its broker is killed and started again while the body of its loop waits; see test_api_starved.py.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import penstock
from penstock import AsyncConnection, Connection, Message

COUNT = 100
KILL_AT = 25
HANG_S = 600.0

Wanted = dict[str, Any]


def strike() -> None:
    """Have the broker killed and started again; returns when it runs."""
    sys.stdout.write("kill\n")
    sys.stdout.flush()
    sys.stdin.readline()


class Striking:
    def __init__(self) -> None:
        self._is_done = False

    def __call__(self, number: int) -> None:
        if number == KILL_AT and not self._is_done:
            self._is_done = True
            strike()


def exactly_once(mq: Connection, wanted: Wanted) -> None:
    look = Striking()
    with mq.exactly_once(wanted["source"], group=wanted["group"], batch=10, limit=COUNT) as loop:
        for message in loop:
            loop.publish(wanted["target"], message.json())
            look(message.json())


async def exactly_once_async(mq: AsyncConnection, wanted: Wanted) -> None:
    look = Striking()
    async with mq.exactly_once(wanted["source"], group=wanted["group"], batch=10, limit=COUNT) as loop:
        async for message in loop:
            await loop.publish(wanted["target"], message.json())
            look(message.json())


def at_least_once(mq: Connection, wanted: Wanted) -> None:
    look, seen = Striking(), Seen()
    with mq.subscribe(wanted["source"], group=wanted["group"], commit_every_s=0.2) as loop:
        for message in loop:
            look(message.json())
            if seen.is_all(message):
                break
    mq.publish_many(wanted["target"], range(COUNT))


async def at_least_once_async(mq: AsyncConnection, wanted: Wanted) -> None:
    look, seen = Striking(), Seen()
    async with mq.subscribe(wanted["source"], group=wanted["group"], commit_every_s=0.2) as loop:
        async for message in loop:
            look(message.json())
            if seen.is_all(message):
                break
    await mq.publish_many(wanted["target"], range(COUNT))


def at_most_once(mq: Connection, wanted: Wanted) -> None:
    look, seen = Striking(), []
    with mq.subscribe(wanted["source"], group=wanted["group"], delivery="at-most-once") as loop:
        for message in loop:
            if message.json() == COUNT:
                break
            seen.append(message.json())
            look(message.json())
    mq.publish_many(wanted["target"], seen)


async def at_most_once_async(mq: AsyncConnection, wanted: Wanted) -> None:
    look, seen = Striking(), []
    async with mq.subscribe(wanted["source"], group=wanted["group"], delivery="at-most-once") as loop:
        async for message in loop:
            if message.json() == COUNT:
                break
            seen.append(message.json())
            look(message.json())
    await mq.publish_many(wanted["target"], seen)


class Seen:
    def __init__(self) -> None:
        self._numbers: set[int] = set()

    def is_all(self, message: Message) -> bool:
        self._numbers.add(message.json())
        return self._numbers == set(range(COUNT))


def work(mq: Connection, wanted: Wanted) -> None:
    """Of a queue that has the same name as the topic."""
    look, seen = Striking(), set()
    for job in mq.queue(wanted["queue"]).work(visibility="2s", backoff=0):
        look(job.json())
        seen.add(job.json())
        if seen == set(range(COUNT)):
            job.delete()
            break
    mq.publish_many(wanted["target"], range(COUNT))


async def work_async(mq: AsyncConnection, wanted: Wanted) -> None:
    look, seen = Striking(), set()
    async with mq.queue(wanted["queue"]).work(visibility="2s", backoff=0) as jobs:
        async for job in jobs:
            look(job.json())
            seen.add(job.json())
            if seen == set(range(COUNT)):
                await job.delete()
                break
    await mq.publish_many(wanted["target"], range(COUNT))


async def run_async(loop: Callable[[AsyncConnection, Wanted], Any], wanted: Wanted) -> None:
    async with penstock.connect_async(wanted["servers"], options=wanted["options"], timeout_s=HANG_S) as mq:
        await loop(mq, wanted)


def main() -> None:
    wanted = json.loads(sys.argv[1])
    loop = globals()[wanted["loop"]]
    if asyncio.iscoroutinefunction(loop):
        asyncio.run(run_async(loop, wanted))
    else:
        with penstock.connect(wanted["servers"], options=wanted["options"], timeout_s=HANG_S) as mq:
            loop(mq, wanted)
    sys.stdout.write("over\n")


if __name__ == "__main__":
    main()
