"""Asking a share group's coordinator, if it is this broker."""

import asyncio
from typing import Any

from penstock.broker.broker import Broker
from penstock.foundation.errors import PenstockError
from penstock.groups.errors import InvalidGroupId


async def ask_coordinator(broker: Broker, group_id: str, command: Any) -> Any:
    """The reply to a command about a group. Raises what stands against it, NotCoordinator too."""
    if not group_id:
        raise InvalidGroupId("a share group needs an id; it is empty")
    heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(reply: Any) -> None:
        if not heard.done():
            heard.set_result(reply)

    broker.groups.submit(group_id, command, answer)
    reply = await heard
    if isinstance(reply, PenstockError):
        raise reply
    return reply
