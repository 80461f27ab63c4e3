"""Large requests and responses through the front end of a broker with real queues: in slices."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import pytest

from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.foundation.time_slices import TimeSlices
from penstock.security.credentials import AccessKey, Credentials
from penstock.sqs.actions import receive_message
from penstock.sqs.call import Endpoint
from penstock.sqs.request_handler import LARGE_BYTES, SqsRequestHandler
from tests.unit.broker.queues.queue_harness import QueueHarness, harness_at, turn

URL = "http://x/000000000000/jobs"
LARGE = "x" * LARGE_BYTES
HIDING = {"QueueUrl": URL, "MaxNumberOfMessages": 10, "VisibilityTimeout": 43_200}
"""A receive with a long visibility timeout: its messages are not visible to others unless they are released."""


class Front:
    """The front end, and how many time slices it has used: every slice is over after one step."""

    def __init__(self, harness: QueueHarness, credentials: Credentials | None = None) -> None:
        self.slices = TimeSlices(map(float, itertools.count()).__next__)
        self.front = SqsRequestHandler(
            harness.service,
            clock=harness.clock,
            slices=self.slices,
            endpoint=Endpoint("x"),
            seed=bytes(10),
            credentials=credentials,
        )

    async def ask(self, request: HttpRequest) -> HttpResponse:
        found = self.front.answer(request)
        return found if isinstance(found, HttpResponse) else await found

    async def call(self, action: str, **params: Any) -> tuple[int, dict[str, Any]]:
        found = await self.ask(call(action, params))
        return found.status, json.loads(found.body)


def call(action: str, params: Any) -> HttpRequest:
    body = params if isinstance(params, bytes) else json.dumps(params).encode()
    return HttpRequest(b"POST", "/", "", {b"host": b"x", b"x-amz-target": b"AmazonSQS." + action.encode()}, body)


def form(**params: Any) -> HttpRequest:
    return HttpRequest(b"POST", "/", "", {b"host": b"x"}, urlencode(params).encode())


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Front]:
    async with harness_at(folder) as harness:
        await harness.create("jobs")
        yield Front(harness)


async def test_a_small_request_takes_no_slice_and_a_large_one_several(tmp_path: Path) -> None:
    async with opened(tmp_path) as front:
        assert (await front.call("SendMessage", QueueUrl=URL, MessageBody="small"))[0] == 200
        assert front.slices.taken == 0
        assert (await front.call("SendMessage", QueueUrl=URL, MessageBody=LARGE))[0] == 200
        assert front.slices.taken >= 3
        before = front.slices.taken
        found = await front.ask(form(Action="SendMessage", QueueUrl=URL, MessageBody=LARGE))
        assert (found.status, b"<MessageId>" in found.body) == (200, True)
        assert front.slices.taken >= before + 3
        assert front.front.request_counts.requests == {"SendMessage": 3}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (call("SendMessage", b"[" * 2 * LARGE_BYTES), "SerializationException"),
        (call("Nonsense", {"a": LARGE}), "InvalidAction"),
        (call("SendMessage", {"QueueUrl": "http://x/1/none", "MessageBody": LARGE}), "NonExistentQueue"),
        (form(Action="Nonsense", a=LARGE), "InvalidAction"),
        (form(a=LARGE), "UnknownOperationException"),
        (form(Action="SendMessage", a=LARGE)._replace(body=b"%" * 2 * LARGE_BYTES), "MalformedQueryString"),
    ],
)
async def test_a_large_request_that_makes_no_sense_is_refused_and_counted(
    tmp_path: Path, request_: HttpRequest, code: str
) -> None:
    async with opened(tmp_path) as front:
        found = await front.ask(request_)
        assert found.status in (400, 404)
        assert code.encode() in found.headers + found.body
        assert sum(front.front.request_counts.requests.values()) == 1
        assert sum(front.front.request_counts.errors.values()) == 1


async def test_a_large_request_is_verified_first(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        key = AccessKey(access_key="AK", secret="a-secret")
        front = Front(harness, Credentials(keys={"AK": key}))
        for request in (call("SendMessage", {"a": LARGE}), form(Action="SendMessage", a=LARGE)):
            found = await front.ask(request)
            assert found.status == 403
            assert b"MissingAuthenticationToken" in found.body
        assert front.slices.taken <= 2, "nothing is decoded"


@pytest.mark.parametrize("codec", ["json", "xml", "query json"])
async def test_large_messages_are_received_one_slice_each(tmp_path: Path, codec: str) -> None:
    async with opened(tmp_path) as front:
        bodies = [f"<{number}>" + '"\\&\n' * 100_000 for number in range(3)]
        for body in bodies:
            assert (await front.call("SendMessage", QueueUrl=URL, MessageBody=body))[0] == 200
        before = front.slices.taken
        request = form(Action="ReceiveMessage", QueueUrl=URL, MaxNumberOfMessages=10)
        if codec == "query json":
            found = await front.ask(request._replace(headers={b"accept": b"application/json"}))
            result = json.loads(found.body)["ReceiveMessageResponse"]["ReceiveMessageResult"]
            assert [message["Body"] for message in result["messages"]] == bodies
            assert all(message["MessageAttributes"] is None for message in result["messages"])
        elif codec == "xml":
            found = await front.ask(request)
            parts = found.body.decode().split("<Body>")[1:]
            texts = [part.partition("</Body>")[0] for part in parts]
            unescaped = [text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for text in texts]
            assert unescaped == bodies
        else:
            _, answer = await front.call("ReceiveMessage", QueueUrl=URL, MaxNumberOfMessages=10)
            assert [message["Body"] for message in answer["Messages"]] == bodies
        assert front.slices.taken >= before + 3


async def test_a_large_response_to_a_disconnected_client_is_abandoned(tmp_path: Path) -> None:
    async with opened(tmp_path) as front:
        for _ in range(3):
            await front.call("SendMessage", QueueUrl=URL, MessageBody="x" * 500_000)
        before = front.slices.taken
        waiting = asyncio.ensure_future(front.ask(call("ReceiveMessage", HIDING)))
        while front.slices.taken == before:  # noqa: ASYNC110
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await turn()
        _, answer = await front.call("ReceiveMessage", **HIDING)
        assert len(answer["Messages"]) == 3, "others are served"


@pytest.mark.parametrize("is_query", [False, True])
async def test_a_receive_that_is_cancelled_at_any_moment_takes_no_message(tmp_path: Path, is_query: bool) -> None:
    """Between the delivery of a message to a waiting client and the writing of the answer."""
    wanted = form(Action="ReceiveMessage", WaitTimeSeconds=20, **HIDING)
    if not is_query:
        wanted = call("ReceiveMessage", {"WaitTimeSeconds": 20, **HIDING})
    async with opened(tmp_path) as front:
        given_up = answered = 0
        for steps in itertools.count():
            waiting = asyncio.ensure_future(cast("asyncio.Future[HttpResponse]", front.front.answer(wanted)))
            await turn()
            await front.call("SendMessage", QueueUrl=URL, MessageBody="x")
            for _ in range(steps):
                await asyncio.sleep(0)
            if waiting.cancel():
                given_up += 1
            else:
                answered += 1
                waiting.result().lose()
            await turn()
            status, found = await front.call("ReceiveMessage", **HIDING, AttributeNames=["ApproximateReceiveCount"])
            (message,) = found["Messages"]
            assert (status, message["Attributes"]) == (200, {"ApproximateReceiveCount": "1"})
            await front.call("DeleteMessage", QueueUrl=URL, ReceiptHandle=message["ReceiptHandle"])
            if answered:
                break
        assert given_up >= 2


async def test_messages_that_cannot_be_encoded_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as front:
        await front.call("SendMessage", QueueUrl=URL, MessageBody="x")
        with monkeypatch.context() as patched:
            patched.setattr(receive_message, "shown_message", lambda *shown: {"Body": object()})
            assert (await front.call("ReceiveMessage", **HIDING))[0] == 500
        await turn()
        assert len((await front.call("ReceiveMessage", **HIDING))[1]["Messages"]) == 1


async def test_an_answer_that_repeats_another_gives_nothing_back(tmp_path: Path) -> None:
    """A client that retries with its ReceiveRequestAttemptId may have received the first response."""
    async with harness_at(tmp_path) as harness:
        await harness.create("jobs", is_fifo=True)
        front = Front(harness)
        sent = {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
        await front.call("SendMessage", QueueUrl=URL, **sent)
        wanted = call("ReceiveMessage", {**HIDING, "ReceiveRequestAttemptId": "mine"})
        first, again = await front.ask(wanted), await front.ask(wanted)
        assert first.body == again.body
        again.lose()
        await turn()
        assert await front.call("ReceiveMessage", **HIDING) == (200, {})
        first.lose()
        await turn()
        assert "Messages" in (await front.call("ReceiveMessage", **HIDING))[1]


async def test_messages_of_a_queue_that_was_just_created_can_be_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness_at(tmp_path) as harness:
        front = Front(harness)

        async def wait_for_queue(name: str) -> None:
            await harness.send(await harness.create(name), b"x")

        monkeypatch.setattr(harness.service, "wait_for_queue", wait_for_queue)
        found = await front.ask(call("ReceiveMessage", HIDING))
        assert b'"Body":"x"' in found.body.replace(b": ", b":")
        found.lose()
        await turn()
        assert len((await front.call("ReceiveMessage", **HIDING))[1]["Messages"]) == 1


async def test_very_many_queues_are_listed_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.sqs import pagination
    from penstock.sqs.actions import list_queues

    monkeypatch.setattr(pagination, "NAMES_PER_STEP", 2)
    monkeypatch.setattr(list_queues, "NAMES_PER_STEP", 2)
    async with harness_at(tmp_path) as harness:
        front = Front(harness)
        for number in (3, 1, 4, 2, 0):
            await harness.create(f"q{number}")
        _, first = await front.call("ListQueues", MaxResults=3, QueueNamePrefix="q")
        assert [url[-2:] for url in first["QueueUrls"]] == ["q0", "q1", "q2"]
        _, second = await front.call("ListQueues", MaxResults=3, NextToken=first["NextToken"])
        assert [url[-2:] for url in second["QueueUrls"]] == ["q3", "q4"]
        assert "NextToken" not in second
        assert front.slices.taken >= 6
