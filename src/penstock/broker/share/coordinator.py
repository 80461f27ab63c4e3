"""Submits commands to the coordinator of a share group on this broker."""

import asyncio
from typing import Any

from penstock.broker.broker import Broker
from penstock.foundation.errors import PenstockError
from penstock.groups.errors import InvalidGroupId


async def ask_coordinator(broker: Broker, group_id: str, command: Any) -> Any:
    """Submits a command about a share group; returns the reply. Raises the coordinator's error, or NotCoordinator."""
    if not group_id:
        raise InvalidGroupId("the share group id is empty; give the id of the group")
    replied: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(reply: Any) -> None:
        if not replied.done():
            replied.set_result(reply)

    broker.groups.submit(group_id, command, answer)
    reply = await replied
    if isinstance(reply, PenstockError):
        raise reply
    return reply
