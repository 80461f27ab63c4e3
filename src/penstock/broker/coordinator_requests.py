"""Asking coordinators: a request becomes a command of the state machine that decides, and its reply the answer."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.foundation.decision import Ask
from penstock.foundation.errors import PenstockError
from penstock.foundation.steps import Steps, run_steps
from penstock.groups.commands import HungUp
from penstock.replication.runtime import Answer, StateRuntime
from penstock.replication.runtimes import StateRuntimes

Refuse = Callable[[PenstockError], Any]
"""Makes the response that says an error."""


def command(request: Any, call: Call) -> Ask:
    """A request, with what a coordinator wants to know about whoever asks."""
    return Ask(body=request, version=call.version, client_id=call.client_id or "", client_host=call.host)


def ask(runtimes: StateRuntimes, key: str, request: Any, call: Call, refuse: Refuse) -> None:
    """Have the coordinator of a key answer a call: at once, or when it has something to say."""
    submit(runtimes, key, command(request, call), call, refuse)


def submit(runtimes: StateRuntimes, key: str, wanted: Any, call: Call, refuse: Refuse) -> None:
    """As `ask`, with a command that was made of the request."""
    runtimes.submit(key, wanted, _taker(call.answer, refuse))


def ask_to_wait(runtimes: StateRuntimes, group_id: str, request: Any, call: Call, refuse: Refuse) -> None:
    """As `ask`, where a group's answer may take long: its coordinator is told if whoever waits hangs up."""
    taker = _taker(call.answer, refuse)
    try:
        runtime = runtimes.find(group_id)
    except PenstockError as error:
        taker(error)
        return
    ticket = runtime.submit(command(request, call), taker)
    if not call.is_answered:
        call.on_gone = lambda: runtime.forget(ticket, HungUp(group_id=group_id, ticket=ticket))


def ask_each(
    broker: Broker,
    runtimes: StateRuntimes,
    parts: Sequence[tuple[str, Any]],
    call: Call,
    refuse: Callable[[Any, PenstockError], Any],
    merge: Callable[[list[Any]], Any],
) -> Awaitable[None] | None:
    """Have coordinators answer parts of a request, each found by its key; the call gets what is merged of them.

    Each part may be large: where there are several, they are asked for in time slices.
    """
    gathering = Gathering(call, len(parts), merge)

    def submit() -> Steps[None]:
        for number, (key, part) in enumerate(parts):
            runtimes.submit(key, command(part, call), gathering.taker(number, partial(refuse, part)))
            yield

    return broker.slices.run(submit()) if len(parts) > 1 else run_steps(submit())


async def ask_all(
    broker: Broker,
    runtimes: Sequence[StateRuntime],
    request: Any,
    call: Call,
    refuse: Refuse,
    merge: Callable[[list[Any]], Any],
) -> None:
    """Have each coordinator answer a request, in time slices; the call gets what is merged of the answers."""
    gathering = Gathering(call, len(runtimes), merge)

    def submit() -> Steps[None]:
        for number, runtime in enumerate(runtimes):
            runtime.submit(command(request, call), gathering.taker(number, refuse))
            yield

    await broker.slices.run(submit())


class Gathering:
    """Answers a call when all parts of the answer are there; they are merged in the order of the questions."""

    def __init__(self, call: Call, count: int, merge: Callable[[list[Any]], Any]) -> None:
        self._call = call
        self._merge = merge
        self._parts: list[Any] = [None] * count
        self._missing = count
        if not count:
            call.answer(merge([]))

    def taker(self, number: int, refuse: Refuse) -> Answer:
        """Takes one part."""

        def take(part: Any) -> None:
            self._parts[number] = part
            self._missing -= 1
            if not self._missing:
                self._call.answer(self._merge(self._parts))

        return _taker(take, refuse)


def _taker(take: Callable[[Any], None], refuse: Refuse) -> Answer:
    """Takes a reply, or makes one of the error that stands in its place."""

    def answer(reply: Any) -> None:
        take(refuse(reply) if isinstance(reply, PenstockError) else reply)

    return answer
