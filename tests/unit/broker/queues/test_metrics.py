"""What /metrics says of queues."""

from pathlib import Path

from penstock.network.exposition import text_pieces
from penstock.network.queue_metrics import QueueMetrics

from .shop import Shop, shop_at, turn


def told(shop: Shop) -> dict[str, float]:
    lines = b"".join(text_pieces(QueueMetrics(shop.service, shop.clock).collect())).decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


async def test_messages_are_told_by_their_state_and_how_old_the_oldest_is(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        queue = await shop.create(partitions=2)
        assert told(shop)['penstock_queue_oldest_seconds{queue="jobs"}'] == 0
        for number in range(10):
            await shop.send(queue, b"%d" % number)
        await shop.advance(5000)
        held = await shop.receive(queue, max_messages=3)
        waiting = shop.wait(await shop.create("idle"))
        await turn()
        found = told(shop)
        assert found['penstock_queue_messages{queue="jobs",state="available"}'] == 7
        assert found['penstock_queue_messages{queue="jobs",state="in_flight"}'] == 3
        assert found['penstock_queue_messages{queue="idle",state="available"}'] == 0
        assert found['penstock_queue_oldest_seconds{queue="jobs"}'] == 5
        assert (found["penstock_queues"], found["penstock_queue_receivers"]) == (2, 1)
        waiting.cancel()
        assert await shop.acknowledge(queue, held) == [None] * 3
        assert told(shop)['penstock_queue_messages{queue="jobs",state="in_flight"}'] == 0
