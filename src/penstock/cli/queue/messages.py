"""`penstock queue send|receive|delete-message`: messages of a queue."""

import asyncio
import sys
from collections.abc import AsyncIterator
from math import ceil
from pathlib import Path
from typing import Any

import click

from penstock.cli.common import Pairs, echo_json, echo_result, echo_table, format_time, pairs_option, plural
from penstock.cli.message_input import read_messages
from penstock.cli.queue.access import DELAY, VISIBILITY, WAIT, Access, access_options, duration_option, run_sqs
from penstock.client.sqs import BATCH_BYTES_MAX, BATCH_MAX, WAIT_S_MAX, SqsClient, SqsError


@click.command()
@click.argument("name")
@click.argument("bodies", nargs=-1)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Send this file as one message, or with --lines as one message per line. Repeatable.",
)
@click.option("--lines", is_flag=True, help="Send each line of a --file as a message.")
@duration_option("--delay", DELAY, "Deliver after a delay, like 30s; up to 15m.  [the queue's delay]")
@click.option("--group", metavar="ID", help="Message group id (FIFO); messages of a group stay in order.")
@click.option("--deduplication-id", metavar="ID", help="Deduplication id (FIFO), for a single message.")
@pairs_option("--attribute", "attributes", help="Add a message attribute. Repeatable.")
@access_options
def send(
    name: str,
    bodies: tuple[str, ...],
    files: tuple[Path, ...],
    lines: bool,
    delay: int | None,
    group: str | None,
    deduplication_id: str | None,
    attributes: Pairs,
    access: Access,
    as_json: bool,
) -> None:
    """Send messages to a queue. Messages are arguments, lines of standard input (default, or -), or files.

    \b
    Examples:
      penstock queue send jobs '{"id": 1}'
      seq 1000 | penstock queue send jobs
      penstock queue send jobs hello --delay 1m --attribute tenant=eu
      penstock queue send payments.fifo '{"id": 1}' --group customer-42 --deduplication-id order-1
    """
    if deduplication_id is not None and (len(bodies) != 1 or files or bodies == ("-",)):
        raise click.UsageError("--deduplication-id is for a single message: the others would count as duplicates")
    if not bodies and not files and sys.stdin.isatty():
        click.echo("Type messages, one per line; Ctrl-D ends.", err=True)
    common: dict[str, Any] = {"DelaySeconds": delay, "MessageGroupId": group}
    common["MessageDeduplicationId"] = deduplication_id
    params = {key: value for key, value in common.items() if value is not None}
    if attributes:
        typed = {key: {"DataType": "String", "StringValue": value} for key, value in attributes}
        params["MessageAttributes"] = typed
    count = 0

    async def work(sqs: SqsClient) -> None:
        nonlocal count
        attribute_bytes = sum(len(f"{key}{value}String".encode()) for key, value in attributes)
        async for batch in _batches(bodies, files, lines, attribute_bytes):
            entries = [{"Id": str(number), "MessageBody": body, **params} for number, body in enumerate(batch)]
            response = await sqs.call("SendMessageBatch", {"QueueUrl": name, "Entries": entries})
            sent = sorted(response.get("Successful", ()), key=lambda each: int(each["Id"]))
            for each in sent:
                count += 1
                if as_json:
                    sequence = each.get("SequenceNumber")
                    echo_json({"queue": name, "message_id": each["MessageId"], "sequence_number": sequence})
            if response.get("Failed"):
                first = min(response["Failed"], key=lambda each: int(each["Id"]))
                refusal = SqsError(first["Code"], f"{first.get('Message', '')} {_sent_so_far(count)}")
                raise refusal

    run_sqs(access, work, name)
    if not as_json:
        click.echo(f"sent {plural(count, 'message')} to queue {name}")


def _sent_so_far(count: int) -> str:
    return f"[{plural(count, 'other message')} sent]" if count else "[nothing was sent]"


async def _batches(
    bodies: tuple[str, ...], files: tuple[Path, ...], lines: bool, attribute_bytes: int
) -> AsyncIterator[list[str]]:
    """Yields lists of message bodies that each fit into one request, if each message has `attribute_bytes` of
    attributes. Each file is one message; with `lines`, each line is. Slow input yields what was read so far."""
    batch: list[str] = []
    size = 0
    source = read_messages(bodies, files, lines=lines, key=None, separator=None)
    following = asyncio.ensure_future(anext(source, None))
    while True:
        done, _ = await asyncio.wait([following], timeout=0 if batch else None)
        if not done:
            yield batch
            batch, size = [], 0
            continue
        message = following.result()
        if message is None:
            break
        try:
            text = message.value.decode()
        except UnicodeDecodeError as error:
            raise click.ClickException(f"a message is not UTF-8, and queues accept only text: {error}") from error
        message_bytes = len(message.value) + attribute_bytes
        if batch and (len(batch) == BATCH_MAX or size + message_bytes > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += message_bytes
        following = asyncio.ensure_future(anext(source, None))
    if batch:
        yield batch


@click.command()
@click.argument("name")
@click.option("--max", "most", type=click.IntRange(1), default=1, show_default=True, help="Most messages to receive.")
@duration_option("--wait", WAIT, "How long to wait for the first message, like 20s.  [the queue's wait]")
@duration_option("--visibility", VISIBILITY, "Visibility timeout, like 5m.  [the queue's timeout]")
@click.option("--delete", "is_deleting", is_flag=True, help="Delete each message after showing it.")
@access_options
def receive(
    name: str, most: int, wait: int | None, visibility: int | None, is_deleting: bool, access: Access, as_json: bool
) -> None:
    """Receive messages of a queue and show them. Unless deleted, they return to the queue after --visibility.

    With --visibility 0s messages stay available to others; showing a message still counts as a receive.

    \b
    Examples:
      penstock queue receive jobs --max 10 --wait 20s
      penstock queue receive jobs --delete
      penstock queue receive jobs --visibility 5m --json | jq -r .receipt
    """
    count = 0

    async def work(sqs: SqsClient) -> list[dict[str, Any]]:
        nonlocal count
        found: list[dict[str, Any]] = []
        async for batch in _receive_batches(sqs, name, most, wait, visibility):
            found += batch
            count += len(batch)
            if as_json:
                for each in batch:
                    echo_json(_as_json(name, each))
            if is_deleting:
                if not as_json:
                    _show(batch, is_deleting)
                await _delete(sqs, name, [each["ReceiptHandle"] for each in batch])
        return found

    found = run_sqs(access, work, name)
    if not found:
        click.echo(f"No message available in queue {name}; --wait 20s waits for one.", err=True)
    elif not as_json and not is_deleting:
        _show(found, is_deleting)


async def _receive_batches(
    sqs: SqsClient, name: str, most: int, wait: int | None, visibility: int | None
) -> AsyncIterator[list[dict[str, Any]]]:
    clock = asyncio.get_running_loop()
    until_s = None if wait is None else clock.time() + wait
    count = 0
    while count < most:
        params: dict[str, Any] = {"QueueUrl": name, "MaxNumberOfMessages": min(BATCH_MAX, most - count)}
        params |= {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        wait_s = WAIT_S_MAX
        if count or until_s is not None:
            wait_s = 0 if count or until_s is None else ceil(min(WAIT_S_MAX, max(0.0, until_s - clock.time())))
            params["WaitTimeSeconds"] = wait_s
        if visibility is not None:
            params["VisibilityTimeout"] = visibility
        response = await sqs.call("ReceiveMessage", params, wait_s=wait_s)
        batch = response.get("Messages", [])
        if batch:
            count += len(batch)
            yield batch
        elif count or until_s is None or clock.time() >= until_s:
            return
        if visibility == 0:
            return  # the same messages would be received again


async def _delete(sqs: SqsClient, name: str, receipts: list[str]) -> None:
    """Deletes up to ten messages; raises SqsError for the first message that cannot be deleted."""
    entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(receipts)]
    response = await sqs.call("DeleteMessageBatch", {"QueueUrl": name, "Entries": entries})
    for each in response.get("Failed", ()):
        raise SqsError(each["Code"], f"a message was not deleted: {each.get('Message', '')}")


def _show(messages: list[dict[str, Any]], is_deleting: bool) -> None:
    header = ["MESSAGE ID", "SENT", "#RECEIVES", "GROUP", "BODY"] + ([] if is_deleting else ["RECEIPT"])
    rows = []
    for each in messages:
        system = each["Attributes"]
        sent = format_time(int(system["SentTimestamp"]))
        cells = [each["MessageId"], sent, system["ApproximateReceiveCount"], system.get("MessageGroupId")]
        rows.append([*cells, each["Body"], *([] if is_deleting else [each["ReceiptHandle"]])])
    if all(row[3] is None for row in rows):
        header.remove("GROUP")
        rows = [[*row[:3], *row[4:]] for row in rows]
    echo_table(header, rows)


def _as_json(name: str, message: dict[str, Any]) -> dict[str, Any]:
    system = message["Attributes"]
    attributes = message.get("MessageAttributes", {})
    return {
        "queue": name,
        "message_id": message["MessageId"],
        "body": message["Body"],
        "encoding": system.get("PenstockBodyEncoding"),
        "sent": format_time(int(system["SentTimestamp"])),
        "receives": int(system["ApproximateReceiveCount"]),
        "group": system.get("MessageGroupId"),
        "deduplication_id": system.get("MessageDeduplicationId"),
        "source": (system.get("DeadLetterQueueSourceArn") or "").rpartition(":")[2] or None,
        "attributes": {key: value.get("StringValue", value.get("BinaryValue")) for key, value in attributes.items()},
        "receipt": message["ReceiptHandle"],
    }


@click.command(name="delete-message")
@click.argument("name")
@click.argument("receipts", nargs=-1, required=True)
@access_options
def delete_message(name: str, receipts: tuple[str, ...], access: Access, as_json: bool) -> None:
    """Delete received messages by their receipt handles.

    A receipt handle is valid until the message is received again.

    \b
    Examples:
      penstock queue delete-message jobs AQAB…
      penstock queue delete-message jobs $(penstock queue receive jobs --json | jq -r .receipt)
    """

    async def work(sqs: SqsClient) -> None:
        for begin in range(0, len(receipts), BATCH_MAX):
            await _delete(sqs, name, list(receipts[begin : begin + BATCH_MAX]))

    run_sqs(access, work, name)
    text = f"deleted {plural(len(receipts), 'message')} of queue {name}"
    echo_result({"queue": name, "deleted": len(receipts)}, text, as_json=as_json)
