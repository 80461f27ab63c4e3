"""The life of messages in three loads: all are sent, then received, then deleted; single, or ten in a request."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.blocking_client import WrongAnswer
from bench.frames import Frame, payload
from bench.load import Load, Sample, read_kept
from bench.measure import settle
from bench.runs import Window
from bench.sqs.blocking_client import SqsBlockingClient, SqsServer, encoded

BODY: Final = payload(50).hex()
"""100 characters."""
MESSAGES_MAX: Final = 100_000
"""In one run: a standard queue has at most 120,000 in flight."""
SEND: Final = "send"
RECEIVE: Final = "receive"
DELETE: Final = "delete"
ACTIONS: Final = (SEND, RECEIVE, DELETE)


@dataclass(frozen=True, slots=True)
class Cell:
    """How a load comes: over so many connections with one request in flight on each, so many messages in one."""

    connections: int
    each: int

    def __str__(self) -> str:
        what = "single" if self.each == 1 else f"batches of {self.each}"
        return f"{what}, {self.connections} connection{'s' if self.connections > 1 else ''}"


CELLS: Final = tuple(Cell(connections, each) for each in (1, 10) for connections in (1, 32))


def cycle(server: SqsServer, cell: Cell, window: Window, folder: Path) -> dict[str, Sample]:
    """The three loads on a new queue, counted in messages; and a check that it holds then what it should."""
    settle()
    with SqsBlockingClient(server.http_port) as client:
        url = client.make_queue()
        try:
            sent = send(server, url, cell, window, folder)
            messages = sent.answered_total
            kept = folder / "kept"
            received = receive(server, url, cell, window, messages, folder, kept)
            handles = [handle for body in read_kept(kept) for handle in _handles(body)]
            if len(handles) != len(set(handles)) or len(handles) != received.answered_total:
                raise WrongAnswer(
                    f"{server.name}: {len(set(handles))} different receipts, expected {received.answered_total}"
                )
            deleted = delete(server, url, cell, window, handles, folder)
            left, expected = client.messages_in(url), messages - deleted.answered_total
            if left != expected and not server.forgets_deletions:
                raise WrongAnswer(
                    f"{server.name}: {left} messages are left of {messages}, {deleted.answered_total} deleted"
                )
        finally:
            client.drop_queue(url)
    return {SEND: sent, RECEIVE: received, DELETE: deleted}


def _handles(body: bytes) -> list[str]:
    return [message["ReceiptHandle"] for message in json.loads(body)["Messages"]]


def send(
    server: SqsServer, url: str, cell: Cell, window: Window, folder: Path, messages: int = MESSAGES_MAX
) -> Sample:
    params: dict[str, Any] = {"QueueUrl": url, "MessageBody": BODY}
    action = "SendMessage"
    if cell.each > 1:
        params = {"QueueUrl": url, "Entries": [{"Id": str(at), "MessageBody": BODY} for at in range(cell.each)]}
        action = "SendMessageBatch"
    frames = [Frame(data=encoded(server.http_port, action, params))]
    return _run(server, cell, _limited(window, messages), frames, messages, folder)


def receive(
    server: SqsServer, url: str, cell: Cell, window: Window, messages: int, folder: Path, keep: Path | None = None
) -> Sample:
    """At most so many messages. Every answer has as many as were asked for."""
    params: dict[str, Any] = {"QueueUrl": url}
    if cell.each > 1:
        params["MaxNumberOfMessages"] = cell.each
    data = encoded(server.http_port, "ReceiveMessage", params)
    frames = [Frame(data=data, answer_bytes=cell.each * len(BODY))]
    return _run(server, cell, _limited(window, messages), frames, messages, folder, keep=keep)


def delete(server: SqsServer, url: str, cell: Cell, window: Window, handles: list[str], folder: Path) -> Sample:
    """Each of these once."""
    frames = [
        Frame(data=encoded(server.http_port, action, {"QueueUrl": url, **params}))
        for action, params in _deletions(handles, cell.each)
    ]
    return _run(server, cell, _limited(window, len(handles)), frames, len(handles), folder)


def _deletions(handles: list[str], each: int) -> Iterable[tuple[str, dict[str, Any]]]:
    if each == 1:
        return (("DeleteMessage", {"ReceiptHandle": handle}) for handle in handles)
    parts = [handles[at : at + each] for at in range(0, len(handles), each)]
    return (
        (
            "DeleteMessageBatch",
            {"Entries": [{"Id": str(at), "ReceiptHandle": handle} for at, handle in enumerate(part)]},
        )
        for part in parts
    )


def _limited(window: Window, messages: int) -> Window:
    """Nothing goes by unmeasured where there may be little to do: it would be over before that began."""
    return window if messages >= MESSAGES_MAX else replace(window, ramp_s=0.0)


def _run(
    server: SqsServer,
    cell: Cell,
    window: Window,
    frames: list[Frame],
    messages: int,
    folder: Path,
    keep: Path | None = None,
) -> Sample:
    sample = Load(
        port=server.http_port,
        frames=frames,
        connections=cell.connections,
        seconds=window.seconds,
        ramp_s=window.ramp_s,
        rate_per_s=window.rate_per_s,
        requests_max=messages // cell.each,
        shares=True,
        is_http=True,
        keep=keep,
    ).run(folder, server.pid, len(BODY))
    return replace(sample, answered=sample.answered * cell.each, answered_total=sample.answered_total * cell.each)
