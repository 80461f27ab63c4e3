"""A callback that is awaited: nothing that it is called with is lost."""

import asyncio

import pytest

from penstock.broker.queues.pending_reply import PendingReply
from penstock.foundation.eager_task import start
from penstock.foundation.errors import InvalidRequest


async def wait(reply: PendingReply[int]) -> int:
    return await reply


async def test_a_reply_that_is_there_is_returned_without_waiting() -> None:
    reply: PendingReply[int] = PendingReply()
    assert reply.is_awaited
    reply(7)
    assert not reply.is_awaited
    assert start(wait(reply)) == 7


async def test_a_reply_that_comes_later_is_waited_for() -> None:
    reply: PendingReply[int] = PendingReply()
    task = start(wait(reply))
    assert isinstance(task, asyncio.Task)
    assert reply.is_awaited
    reply(7)
    assert await task == 7


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_error_is_raised(is_first: bool) -> None:
    reply: PendingReply[int] = PendingReply()
    if is_first:
        reply(InvalidRequest("no"))
    else:
        asyncio.get_running_loop().call_soon(reply, InvalidRequest("no"))
    with pytest.raises(InvalidRequest):
        await reply


@pytest.mark.parametrize("turns", range(4))
async def test_a_reply_to_a_task_that_was_cancelled_at_any_moment_is_undone(turns: int) -> None:
    undone: list[int] = []
    reply: PendingReply[int] = PendingReply(undone.append)
    task = start(wait(reply))
    assert isinstance(task, asyncio.Task)
    await asyncio.sleep(0)
    if turns < 2:
        task.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not reply.is_awaited
        reply(7)
    else:  # it has come, but the task has not run since
        reply(7)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == [7]


async def test_a_second_reply_is_undone() -> None:
    undone: list[int] = []
    reply: PendingReply[int] = PendingReply(undone.append)
    reply(7)
    reply(8)
    reply(InvalidRequest("no"))
    assert await reply == 7
    assert undone == [8]
