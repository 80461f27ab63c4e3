"""Producer ids: never the same one twice."""

import asyncio
from pathlib import Path

from penstock.broker.call import Call
from penstock.broker.handlers.init_producer_id import init_producer_id
from penstock.broker.transactions.producer_ids import BLOCK, ProducerIds
from penstock.cluster.metadata import Metadata
from penstock.coordination.embedded import EmbeddedStore
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.init_producer_id import InitProducerIdRequest

from ..replication.broker_state import world_at
from .brokers import Timers, broker_of


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


async def test_while_the_store_is_unavailable_producers_get_a_retriable_error(tmp_path: Path) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    call = Call(ApiKey.INIT_PRODUCER_ID, 5, 0, "", 0.0, 0, "", lambda answered: None)
    async with world_at(tmp_path) as world:
        broker = broker_of(world, Timers())
        world.store.is_down = True
        answer = await init_producer_id(request, call, broker)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        world.store.is_down = False
        answer = await init_producer_id(request, call, broker)
        assert (answer.error_code, answer.producer_id) == (0, 0)
