"""The image of the cluster over stores that several brokers share."""

import asyncio
import random

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata import Metadata
from penstock.coordination.store import ABSENT, Op, Put

from .stores import PATIENCE_S, Stores, until


def count_up(name: str, image: ClusterImage) -> list[Op]:
    """Adds one to a number in the settings of a broker."""
    key = keys.broker_config(name)
    number = int(image.broker_configs.get(name, {}).get("n", "0"))
    return [Put(key, keys.encode({"n": str(number + 1)}), image.versions.get(key, ABSENT))]


async def test_brokers_that_change_the_same_things_end_with_the_same_image(
    remote: Stores, rng: random.Random
) -> None:
    """A late writer decides again on the newer state; no call waits for a change that will not come."""
    wanted = [rng.choice("xyz") for _ in range(20)]

    async def change(metadata: Metadata) -> None:
        for name in wanted:
            await metadata.change(lambda image, name=name: count_up(name, image))

    async with remote.opened() as one, remote.opened() as two, remote.opened() as three:
        brokers = [Metadata(one), Metadata(two), Metadata(three)]
        for metadata in brokers:
            await metadata.start()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(change(metadata) for metadata in brokers))
        truth = {name: {"n": str(3 * wanted.count(name))} for name in set(wanted)}
        for metadata in brokers:
            await until(lambda metadata=metadata: metadata.image.broker_configs == truth, "the image is up to date")
        assert brokers[0].image.versions == brokers[1].image.versions == brokers[2].image.versions
