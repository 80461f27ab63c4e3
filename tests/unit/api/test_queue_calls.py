"""Requests of the Python API for one queue: which messages a failed `send_many` has sent."""

import asyncio
import json
from typing import Any

import pytest

from penstock.api.core.job import SendFailed
from penstock.api.core.queue_calls import QueueCalls
from penstock.api.errors import ApiError
from penstock.client.http import Endpoint
from penstock.client.sqs import SqsClient
from tests.unit.client.http_servers import Serve, read_request, serving

DENIED = {"__type": "com.amazonaws.sqs#AccessDenied", "message": "no"}


def _successful(*ids: int) -> list[dict[str, str]]:
    return [{"Id": str(id), "MessageId": f"m{id}", "MD5OfMessageBody": ""} for id in ids]


def _failed(*ids: int, is_sender: bool = False) -> list[dict[str, Any]]:
    return [{"Id": str(id), "Code": "Busy", "Message": "later", "SenderFault": is_sender} for id in ids]


def _replies(*replies: dict[str, Any]) -> Serve:
    """A server that answers SendMessageBatch requests with these replies, one after another."""
    left = list(replies)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            body = json.dumps(left[0]).encode()
            status = b"400 Bad Request" if "__type" in left.pop(0) else b"200 OK"
            writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))

    return serve


def _send(count: int, *replies: dict[str, Any], queue: str = "jobs") -> list[str]:
    async def work() -> list[str]:
        async with serving(_replies(*replies)) as here:

            async def find() -> list[Endpoint]:
                return [here]

            sqs = SqsClient(find)
            try:
                return [sent.message_id for sent in await QueueCalls(sqs, queue).send_many(range(count))]
            finally:
                sqs.close()

    return asyncio.run(work())


def _failure(count: int, *replies: dict[str, Any], queue: str = "jobs") -> tuple[list[str | None], set[int]]:
    """Returns the ids of the messages that were sent, None for others, and the indexes of the failed ones."""
    with pytest.raises(SendFailed) as caught:
        _send(count, *replies, queue=queue)
    return [sent and sent.message_id for sent in caught.value.sent], set(caught.value.failed)


def test_messages_that_failed_for_now_are_sent_again() -> None:
    assert _send(2, {"Successful": _successful(0), "Failed": _failed(1)}, {"Successful": _successful(1)}) == [
        "m0",
        "m1",
    ]


def test_nothing_was_sent_if_the_first_request_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        _send(2, DENIED)
    assert not isinstance(caught.value, SendFailed)


def test_messages_sent_before_a_refused_retry_are_reported_as_sent() -> None:
    sent, failed = _failure(2, {"Successful": _successful(0), "Failed": _failed(1)}, DENIED)
    assert (sent, failed) == (["m0", None], {1})


def test_no_message_is_reported_as_both_sent_and_failed() -> None:
    first = {"Successful": _successful(*range(10))}
    second = {"Successful": _successful(10), "Failed": _failed(11)}
    sent, failed = _failure(12, first, second, DENIED)
    assert (sent, failed) == ([*(f"m{id}" for id in range(11)), None], {11})


def test_messages_after_a_failed_one_are_not_sent_to_a_fifo_queue() -> None:
    first = {"Successful": _successful(*range(9)), "Failed": _failed(9)}
    sent, failed = _failure(12, first, DENIED, queue="jobs.fifo")
    assert (sent, failed) == ([*(f"m{id}" for id in range(9)), None, None, None], {9, 10, 11})
