"""Producer ids: never the same one twice."""

import asyncio
from pathlib import Path

from penstock.broker.producer_ids import BLOCK, ProducerIds
from penstock.cluster.metadata import Metadata
from penstock.coordination.embedded import EmbeddedStore


async def test_no_two_producers_ever_get_the_same_id(tmp_path: Path) -> None:
    given: list[int] = []
    for _ in range(2):
        store = EmbeddedStore(tmp_path / "metadata.db")
        await store.open()
        metadata = Metadata(store)
        await metadata.start()
        brokers = [ProducerIds(metadata), ProducerIds(metadata)]
        given += await asyncio.gather(*(ids.take() for _ in range(BLOCK + 5) for ids in brokers))
        await store.close()
    assert len(set(given)) == len(given) == 4 * (BLOCK + 5)
    assert min(given) == 0
