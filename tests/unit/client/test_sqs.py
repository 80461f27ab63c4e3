"""The SQS client: which broker it asks, retries, and errors."""

import asyncio

import pytest

from penstock.client.errors import ConnectionFailed
from penstock.client.http import Endpoint
from penstock.client.sqs import NoQueueEndpoint, SqsClient, SqsError, endpoints_of

from .http_servers import Serve, read_request, serving

NOWHERE = Endpoint("127.0.0.1", 1)
HANG_UP = b""


def answer(body: bytes, status: str = "200 OK", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status.encode(), headers, len(body), body)


def saying(*answers: bytes) -> Serve:
    """Returns one response after the other, on any connection; the last one again and again."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await read_request(reader)
            assert b"x-amz-target: AmazonSQS.ListQueues\r\n" in head
            said = left.pop(0) if len(left) > 1 else left[0]
            if said == HANG_UP:
                return
            writer.write(said)

    return serve


def ask(serve: Serve, *, others: tuple[Endpoint, ...] = ()) -> dict[str, object]:
    async def work() -> dict[str, object]:
        async with serving(serve) as here:

            async def find() -> list[Endpoint]:
                return [*others, here]

            client = SqsClient(find)
            try:
                return await client.call("ListQueues", {})
            finally:
                client.close()

    return asyncio.run(work())


def test_the_next_broker_is_asked_if_one_cannot_be_reached() -> None:
    assert ask(saying(answer(b'{"a":1}')), others=(NOWHERE, NOWHERE._replace(port=2))) == {"a": 1}


def test_lost_and_retriable_requests_are_retried() -> None:
    busy = answer(b'{"__type":"x#ServiceUnavailable","message":"m"}', "503 Service Unavailable")
    gateway = answer(b"<html>", "502 Bad Gateway")
    assert ask(saying(busy, gateway, HANG_UP, answer(b"{}"))) == {}


def test_an_error_keeps_the_text_of_the_server() -> None:
    error_response = answer(
        b'{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"none"}',
        "400 Bad Request",
        b"x-amzn-query-error: AWS.SimpleQueueService.NonExistentQueue;Sender\r\n",
    )
    with pytest.raises(SqsError, match="none") as refused:
        ask(saying(error_response))
    assert (refused.value.reason, refused.value.status) == ("AWS.SimpleQueueService.NonExistentQueue", 400)


def test_a_server_without_queues_is_recognised() -> None:
    with pytest.raises(SqsError, match="not an SQS endpoint: it sent 'not found'"):
        ask(saying(answer(b"not found", "404 Not Found")))


def test_an_endpoint_that_never_answered_is_not_retried() -> None:
    async def find() -> list[Endpoint]:
        return [NOWHERE]

    async def work() -> None:
        client = SqsClient(find, timeout_s=600)
        with pytest.raises(ConnectionFailed, match="connection refused"):
            await client.call("ListQueues", {})
        client.close()

    asyncio.run(work())


def test_brokers_that_have_moved_are_looked_for_again() -> None:
    async def work() -> None:
        places: list[Endpoint] = []

        async def find() -> list[Endpoint]:
            return list(places)

        client = SqsClient(find)
        async with serving(saying(answer(b"{}"))) as before:
            places[:] = [before]
            assert await client.call("ListQueues", {}) == {}
        async with serving(saying(answer(b'{"b":2}'))) as after:
            places[:] = [after]
            assert await client.call("ListQueues", {}) == {"b": 2}
        client.close()

    asyncio.run(work())


def test_queue_endpoints_are_those_that_brokers_advertise() -> None:
    shown = ["127.0.0.1:9324", "http://127.0.0.1:9324", "", "https://queues.example.org"]
    assert [str(each) for each in endpoints_of(shown, "b:1")] == [
        "http://127.0.0.1:9324",
        "https://queues.example.org",
    ]
    with pytest.raises(NoQueueEndpoint, match=r"brokers at b:1 do not advertise .* endpoint"):
        endpoints_of(["", ""], "b:1")
    with pytest.raises(NoQueueEndpoint, match=r"invalid advertised\.http: 'ftp://x'"):
        endpoints_of(["ftp://x"], "b:1")
