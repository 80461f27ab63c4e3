"""Messages that are shown without being received, on one broker and on two."""

from pathlib import Path
from typing import Any

import pytest

from penstock.broker.queues import peek as peek_module
from penstock.broker.queues.messages import NewMessage, QueueUnavailable
from penstock.broker.queues.peek import PeekRequest, PeekResult
from penstock.broker.queues.service import QueueService
from penstock.cluster.queues import Queue
from penstock.queues.commands import AckType
from penstock.wire.messages.queue_peek import (
    BYTES_MAX,
    DELAYED,
    IN_FLIGHT,
    MESSAGES_MAX,
    VISIBLE,
    QueuePeekRequest,
    QueuePeekResponse,
)

from .queue_harness import harness_at, turn
from .two_brokers import two_brokers_at


async def peek(service: QueueService, queue: Queue, **options: Any) -> PeekResult:
    wanted = {"max_messages": MESSAGES_MAX, "max_bytes": BYTES_MAX, "shows_in_flight": True, "shows_delayed": True}
    return await service.peeks.peek(queue, PeekRequest.of(queue, **{**wanted, **options}))


def states(found: PeekResult) -> dict[bytes, int]:
    return {each.message.value: each.state for each in found.messages}


async def test_every_message_is_shown_with_its_state_and_stays_as_it_was(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.send(queue, b"done", b"held", b"released", b"fresh")
        await harness.send(queue, b"later", headers=(("penstock-delay-ms", b"60000"),))
        taken = await harness.receive(queue, 3)
        await harness.acknowledge(queue, taken[:1])
        await harness.acknowledge(queue, taken[2:], AckType.RELEASE)
        before = await harness.counts(queue)
        wanted = {b"held": IN_FLIGHT, b"released": VISIBLE, b"fresh": VISIBLE, b"later": DELAYED}
        for _ in range(3):
            found = await peek(harness.service, queue)
            assert states(found) == wanted
            assert not found.has_more
        assert {each.message.value: each.message.count for each in found.messages} == {
            b"held": 1,
            b"released": 1,
            b"fresh": 0,
            b"later": 0,
        }
        assert {each.message.holder for each in found.messages} == {""}
        assert found.messages[0].message.message_id == taken[1].message_id
        assert await harness.counts(queue) == before
        assert states(await peek(harness.service, queue, shows_in_flight=False)) == {
            value: state for value, state in wanted.items() if state != IN_FLIGHT
        }
        assert states(await peek(harness.service, queue, shows_delayed=False)) == {
            value: state for value, state in wanted.items() if state != DELAYED
        }
        await harness.advance(31_000)
        assert states(await peek(harness.service, queue))[b"held"] == VISIBLE
        await harness.advance(60_000)
        assert states(await peek(harness.service, queue))[b"later"] == VISIBLE


async def test_the_delay_of_a_queue_counts_as_well(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create(delay_s=10)
        await harness.send(queue, b"x")
        assert states(await peek(harness.service, queue)) == {b"x": DELAYED}
        await harness.advance(10_000)
        assert states(await peek(harness.service, queue)) == {b"x": VISIBLE}


async def test_messages_of_a_group_wait_for_the_one_that_is_in_flight(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create("jobs.fifo", is_fifo=True)
        for number, group in enumerate((b"a", b"a", b"b", b"a")):
            message = NewMessage(b"%s%d" % (group, number), group, (), f"id{number}")
            await harness.service.send(queue, [message])
        assert set(states(await peek(harness.service, queue)).values()) == {VISIBLE}
        await harness.receive(queue, 1)
        assert states(await peek(harness.service, queue)) == {
            b"a0": IN_FLIGHT,
            b"a1": IN_FLIGHT,
            b"b2": VISIBLE,
            b"a3": IN_FLIGHT,
        }
        assert states(await peek(harness.service, queue, shows_in_flight=False)) == {b"b2": VISIBLE}


async def test_messages_that_do_not_fit_are_left_out_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.send(queue, *(b"%03d" % number for number in range(300)))
        found = await peek(harness.service, queue, max_messages=7)
        assert [each.message.value for each in found.messages] == [b"%03d" % number for number in range(7)]
        assert found.has_more
        assert len((await peek(harness.service, queue)).messages) == 300
        found = await peek(harness.service, queue, max_bytes=30)
        assert (len(found.messages), found.has_more) == (10, True)
        found = await peek(harness.service, queue, max_bytes=1)
        assert (len(found.messages), found.has_more) == (1, True), "the first one is shown however large"
        taken = await harness.receive(queue, 10)
        found = await peek(harness.service, queue, max_messages=7, shows_in_flight=False)
        assert [each.message.value for each in found.messages] == [b"%03d" % number for number in range(10, 17)]
        await harness.acknowledge(queue, taken)
        monkeypatch.setattr(peek_module, "SCAN_MAX", 100)
        found = await peek(harness.service, queue)
        assert (len(found.messages), found.has_more) == (100, True)


async def test_the_partitions_of_other_brokers_are_shown_as_well(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        for node in (1, 2):
            await cluster.brokers[node].service.send(queue, [NewMessage(b"by %d" % node)])
        for node in (1, 2):
            service = cluster.brokers[node].service
            assert sorted(states(await peek(service, queue))) == [b"by 1", b"by 2"]
            found = await peek(service, queue, max_messages=1)
            assert (len(found.messages), found.has_more) == (1, True)
        cluster.hold = lambda message: isinstance(message, QueuePeekResponse)
        with pytest.raises(QueueUnavailable):
            await peek(cluster.brokers[1].service, queue)


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0), (MESSAGES_MAX + 1, 1), (1, BYTES_MAX + 1), (-1, -1)])
async def test_a_request_beyond_the_bounds_is_refused(tmp_path: Path, bounds: tuple[int, int]) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        heard: list[Any] = []
        request = QueuePeekRequest(
            queue=queue.name, topic_id=queue.topic_id, max_messages=bounds[0], max_bytes=bounds[1]
        )
        cluster.carry(1, 2, request, heard.append)
        await turn()
        assert heard[0].error == "InvalidRequest"
