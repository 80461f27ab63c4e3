"""Waits until newly started brokers have learned of each other and of a controller."""

import asyncio
from collections.abc import Collection
from typing import Final

from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.connection import ConnectionSettings
from penstock.client.errors import ConnectionFailed, LoginRefused
from penstock.client.security import PLAINTEXT, SecuritySettings
from penstock.foundation.errors import PenstockError

CONNECTED_S: Final = 60.0
_PAUSE_S: Final = 0.05


class BrokersNotConnected(PenstockError):
    """The brokers are running, but have not discovered each other in time."""


async def wait_until_connected(
    addresses: Collection[str], node_ids: Collection[int], security: SecuritySettings = PLAINTEXT
) -> None:
    """Returns when every broker knows all `node_ids` and a controller. Raises BrokersNotConnected after
    CONNECTED_S. `addresses`: where each broker listens. Without this wait, the controller might not know all
    brokers yet, and refuse topics with as many replicas as there are brokers."""
    settings = ClientSettings(connection=ConnectionSettings(security=security))
    await asyncio.gather(*(_wait_for_broker(address, set(node_ids), settings) for address in addresses))


async def _wait_for_broker(address: str, node_ids: set[int], settings: ClientSettings) -> None:
    found = "it does not answer"
    try:
        async with asyncio.timeout(CONNECTED_S):
            while True:
                try:
                    async with KafkaClient(address, settings=settings) as client:
                        view = client.view
                except (ConnectionFailed, LoginRefused) as error:
                    found = str(error)
                else:
                    if node_ids <= view.brokers.keys() and view.controller in view.brokers:
                        return
                    found = f"it knows brokers {sorted(view.brokers)}, and {view.controller} as the controller"
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise BrokersNotConnected(
            f"broker {address} has not discovered brokers {sorted(node_ids)} within {CONNECTED_S:g} s: {found}"
        ) from None
