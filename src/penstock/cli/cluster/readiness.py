"""Waits until the brokers that one command has started know each other."""

import asyncio
from collections.abc import Collection
from typing import Final

from penstock.client.cluster import KafkaClient
from penstock.client.errors import ConnectionFailed
from penstock.foundation.errors import PenstockError

WHOLE_S: Final = 60.0
_PAUSE_S: Final = 0.05


class NotWhole(PenstockError):
    """The brokers run, but have not discovered each other."""


async def until_whole(addresses: Collection[str], node_ids: Collection[int]) -> None:
    """Returns when every broker knows all of `node_ids` and a controller. Raises NotWhole after WHOLE_S.

    A broker that is ready is registered; the others learn of it a little later. Until the controller has, it refuses
    topics with as many replicas as there are brokers.

    `addresses`: where each broker listens.
    """
    await asyncio.gather(*(_until_known(address, set(node_ids)) for address in addresses))


async def _until_known(address: str, node_ids: set[int]) -> None:
    found = "it does not answer"
    try:
        async with asyncio.timeout(WHOLE_S):
            while True:
                try:
                    async with KafkaClient(address) as client:
                        view = client.view
                except ConnectionFailed as error:
                    found = str(error)
                else:
                    if node_ids <= view.brokers.keys() and view.controller in view.brokers:
                        return
                    found = f"it knows brokers {sorted(view.brokers)}, and {view.controller} as the controller"
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise NotWhole(
            f"the broker at {address} has not discovered brokers {sorted(node_ids)} within {WHOLE_S:g} s: {found}"
        ) from None
