"""The metrics of queues."""

from pathlib import Path

from penstock.network.exposition import text_pieces
from penstock.network.queue_metrics import QueueMetrics

from .queue_harness import QueueHarness, harness_at, turn


def samples(harness: QueueHarness) -> dict[str, float]:
    lines = b"".join(text_pieces(QueueMetrics(harness.service, harness.clock).collect())).decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


async def test_metrics_count_messages_by_state_and_show_the_age_of_the_oldest(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create(partitions=2)
        assert samples(harness)['penstock_queue_oldest_seconds{queue="jobs"}'] == 0
        for number in range(10):
            await harness.send(queue, b"%d" % number)
        await harness.advance(5000)
        held = await harness.receive(queue, max_messages=3)
        waiting = harness.wait(await harness.create("idle"))
        await turn()
        found = samples(harness)
        assert found['penstock_queue_messages{queue="jobs",state="available"}'] == 7
        assert found['penstock_queue_messages{queue="jobs",state="in_flight"}'] == 3
        assert found['penstock_queue_messages{queue="idle",state="available"}'] == 0
        assert found['penstock_queue_oldest_seconds{queue="jobs"}'] == 5
        assert (found["penstock_queues"], found["penstock_queue_receivers"]) == (2, 1)
        waiting.cancel()
        assert await harness.acknowledge(queue, held) == [None] * 3
        assert samples(harness)['penstock_queue_messages{queue="jobs",state="in_flight"}'] == 0
