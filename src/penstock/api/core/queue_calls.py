"""SQS requests for one queue: send, receive, delete, change visibility, purge. Used by tasks of one event loop."""

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any, Final

from penstock.api.core.durations import Duration, seconds_of, whole_seconds
from penstock.api.core.job import OutgoingJob, QueueCounts, SendFailed, SentJob
from penstock.api.core.queue_wire import (
    VISIBILITY_S_MAX,
    Entry,
    entry_of,
    explain_reason,
    explained,
    portions,
    read_message,
)
from penstock.api.errors import ApiError, InvalidArgument
from penstock.client.queue_attributes import FIFO_SUFFIX, MESSAGE_COUNTS, message_counts
from penstock.client.sqs import BATCH_MAX, WAIT_S_MAX, SqsClient

TRIES_MAX: Final = 5
"""Maximum number of attempts to send the messages of a batch that failed without SenderFault."""
RETRY_DELAY_S: Final = 0.2


class QueueCalls:
    """SQS requests for one queue. All errors are raised as ApiErrors."""

    def __init__(self, sqs: SqsClient, name: str) -> None:
        self._sqs = sqs
        self.name = name

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(FIFO_SUFFIX)

    async def _call(self, action: str, params: dict[str, Any], *, wait_s: float = 0.0) -> dict[str, Any]:
        with explained(self.name):
            return await self._sqs.call(action, {"QueueUrl": self.name, **params}, wait_s=wait_s)

    # -- sending

    async def send(self, message: OutgoingJob) -> SentJob:
        response = await self._call("SendMessage", entry_of(message).params)
        return self._sent(response)

    async def send_many(self, messages: Iterable[object]) -> list[SentJob]:
        """Sends all messages. After a rejected message, the other messages are still sent, except in a FIFO queue."""
        entries = [
            entry_of(message if isinstance(message, OutgoingJob) else OutgoingJob(message)) for message in messages
        ]
        sent: list[SentJob | None] = []
        failures: dict[int, tuple[str, str]] = {}
        for portion in portions(entries):
            begin = len(sent)
            sent += [None] * len(portion)
            try:
                failed = await self._send_portion(portion, begin, sent)
            except ApiError as error:
                if begin == 0:
                    raise  # no message is known to be sent
                failed = {number: (type(error).__name__, str(error)) for number in range(begin, len(entries))}
                sent += [None] * (len(entries) - len(sent))
                failures |= failed
                break
            failures |= failed
            if failed and self.is_fifo:
                # Later messages must not overtake a failed one.
                failures |= dict.fromkeys(range(len(sent), len(entries)), ("NotSent", "an earlier one failed"))
                sent += [None] * (len(entries) - len(sent))
                break
        if failures:
            raise self._send_failed(sent, failures)
        return [each for each in sent if each is not None]

    async def _send_portion(
        self, portion: Sequence[Entry], begin: int, sent: list[SentJob | None]
    ) -> dict[int, tuple[str, str]]:
        """Sends up to ten messages, with retries; sets their results in `sent`, from index `begin` on. Returns the
        errors (code and text) of failed messages, by message index.

        Raises ApiError only if the first attempt fails: then no message is known to be sent.
        """
        left = {str(begin + number): entry for number, entry in enumerate(portion)}
        failures: dict[int, tuple[str, str]] = {}
        for attempt in range(1, TRIES_MAX + 1):
            entries = [{"Id": name, **entry.params} for name, entry in left.items()]
            try:
                response = await self._call("SendMessageBatch", {"Entries": entries})
            except ApiError as error:
                if attempt == 1:
                    raise
                return failures | {int(name): (type(error).__name__, str(error)) for name in left}
            for each in response.get("Successful", ()):
                sent[int(each["Id"])] = self._sent(each)
                failures.pop(int(each["Id"]), None)
                del left[each["Id"]]
            for each in response.get("Failed", ()):
                failures[int(each["Id"])] = each["Code"], each.get("Message", "")
                if each["SenderFault"]:
                    del left[each["Id"]]
            if not left or attempt == TRIES_MAX:
                break
            await asyncio.sleep(RETRY_DELAY_S * attempt)
        return failures

    def _sent(self, response: Mapping[str, Any]) -> SentJob:
        return SentJob(queue=self.name, message_id=response["MessageId"], sequence=response.get("SequenceNumber", ""))

    def _send_failed(self, sent: Sequence[SentJob | None], failures: Mapping[int, tuple[str, str]]) -> SendFailed:
        first = min(failures)
        reason, message = failures[first]
        return SendFailed(
            f"{len(failures)} of {len(sent)} messages were not sent to queue {self.name!r}, first message {first}: "
            f"{message} ({reason}); error.failed has all of them, by index",
            failed={number: f"{text} ({code})" for number, (code, text) in failures.items()},
            sent=tuple(sent),
            reason=reason,
        )

    # -- receiving

    async def receive(
        self, most: int, wait: Duration | None = None, visibility: Duration | None = None
    ) -> list[dict[str, Any]]:
        """Returns up to `most` messages as dicts of Received fields; waits up to `wait` for the first message."""
        if most < 1:
            raise InvalidArgument(f"max={most} is invalid; give 1 or more")
        loop = asyncio.get_running_loop()
        until_s = None if wait is None else loop.time() + seconds_of(wait, "wait")
        found: list[dict[str, Any]] = []
        while True:
            wait_s = None if until_s is None else ceil(min(WAIT_S_MAX, max(0.0, until_s - loop.time())))
            wanted = min(BATCH_MAX, most - len(found))
            try:
                got = await self._receive(wanted, 0 if found else wait_s, visibility)
            except ApiError:
                if not found:
                    raise
                return found  # these are received, even if the rest fails
            found += got
            if found and (len(got) < wanted or len(found) >= most):
                return found
            if not got and (until_s is None or loop.time() >= until_s):
                return found

    async def _receive(self, most: int, wait_s: int | None, visibility: Duration | None) -> list[dict[str, Any]]:
        params: dict[str, Any] = {
            "MaxNumberOfMessages": most,
            "AttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        }
        if wait_s is not None:
            params["WaitTimeSeconds"] = wait_s
        if visibility is not None:
            params["VisibilityTimeout"] = visibility_s(visibility)
        if self.is_fifo:
            # If the response is lost, a retry with the same id returns the same messages.
            params["ReceiveRequestAttemptId"] = str(uuid.uuid4())
        response = await self._call("ReceiveMessage", params, wait_s=WAIT_S_MAX if wait_s is None else wait_s)
        return [read_message(self.name, each) for each in response.get("Messages", ())]

    # -- delete and visibility

    async def delete(self, receipt: str) -> None:
        await self._call("DeleteMessage", {"ReceiptHandle": receipt})

    async def change(self, receipt: str, timeout_s: int) -> None:
        """Sets the visibility timeout of a message, counted from now; 0 makes the message visible."""
        await self._call("ChangeMessageVisibility", {"ReceiptHandle": receipt, "VisibilityTimeout": timeout_s})

    async def extend_all(self, receipts: Sequence[str], timeout_s: int) -> dict[str, ApiError]:
        """Sets the visibility timeout of messages. Returns the errors, by receipt handle, that a retry cannot fix."""
        lost: dict[str, ApiError] = {}
        for begin in range(0, len(receipts), BATCH_MAX):
            some = receipts[begin : begin + BATCH_MAX]
            entries = [
                {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": timeout_s}
                for number, receipt in enumerate(some)
            ]
            response = await self._call("ChangeMessageVisibilityBatch", {"Entries": entries})
            for each in response.get("Failed", ()):
                if each["SenderFault"]:  # else the next renewal retries it
                    error = explain_reason(each["Code"], each.get("Message", ""), self.name)
                    lost[some[int(each["Id"])]] = error
        return lost

    # -- the queue itself

    async def purge(self) -> None:
        await self._call("PurgeQueue", {})

    async def counts(self) -> QueueCounts:
        response = await self._call("GetQueueAttributes", {"AttributeNames": list(MESSAGE_COUNTS.values())})
        return QueueCounts(**message_counts(response["Attributes"]))

    async def delete_queue(self) -> None:
        await self._call("DeleteQueue", {})


def visibility_s(visibility: Duration, *, least: int = 0) -> int:
    return whole_seconds(visibility, "visibility", least=least, most=VISIBILITY_S_MAX)
