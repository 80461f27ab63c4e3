"""`penstock delayed`: lists and cancels delayed messages."""

import click

from penstock.cli.common import cluster_options, echo_list, format_time, run_client
from penstock.cli.message_output import printable
from penstock.client.cluster import KafkaClient
from penstock.client.delayed import Cancelled, DelayedMessages, PendingMessage


@click.group()
def delayed() -> None:
    """List and cancel delayed messages. Only topics with delayed.messages=true have some.

    \b
    Examples:
      penstock publish orders "remind me" --delay 30s
      penstock delayed list orders
      penstock delayed cancel orders --partition 0 --offset 17
    """


@delayed.command(name="list")
@click.argument("topic")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.  [all]")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Most messages per partition.")
@cluster_options
def list_(topic: str, partition: int | None, limit: int, bootstrap: str, as_json: bool) -> None:
    """List messages that are not delivered yet, the earliest due first.

    \b
    Examples:
      penstock delayed list orders
      penstock delayed list orders --partition 2 --limit 1000 --json
    """

    async def work(client: KafkaClient) -> tuple[list[PendingMessage], int]:
        messages = DelayedMessages(client, topic)
        numbers = await messages.partitions() if partition is None else [partition]
        found = [one for number in numbers async for one in messages.waiting(number, limit)]
        pending = [await messages.pending(number) for number in numbers]
        return sorted(found, key=lambda one: (one.due_ms, one.partition, one.offset)), sum(pending)

    found, pending = run_client(bootstrap, work)
    echo_list(
        [
            {
                "partition": one.partition,
                "offset": one.offset,
                "due": format_time(one.due_ms),
                "due_ms": one.due_ms,
                "timestamp_ms": one.timestamp_ms,
                "key": _key(one),
                "bytes": one.value_bytes,
            }
            for one in found
        ],
        ["PARTITION", "OFFSET", "DUE", "KEY", "BYTES"],
        [
            (one.partition, one.offset, format_time(one.due_ms), _key(one) or "", max(0, one.value_bytes))
            for one in found
        ],
        as_json=as_json,
        nothing="No delayed messages found.",
    )
    if found and pending > len(found) and not as_json:
        click.echo(f"Shown are {len(found)} of {pending}; see --limit.", err=True)


def _key(message: PendingMessage) -> str | None:
    return None if message.key is None else printable(message.key)


@delayed.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(0), help="The partition that the messages were published to.")
@click.option("--offset", "offsets", multiple=True, type=click.IntRange(0), help="A message's offset. Repeatable.")
@click.option("--key", help="Cancel all messages with this key, in all partitions.")
@cluster_options
def cancel(
    topic: str, partition: int | None, offsets: tuple[int, ...], key: str | None, bootstrap: str, as_json: bool
) -> None:
    """Cancel the delivery of delayed messages. Selects them by partition and offset, or by key.

    Shows for each message whether it was still pending. A cancelled message is never delivered.

    \b
    Examples:
      penstock delayed cancel orders --partition 0 --offset 17 --offset 18
      penstock delayed cancel orders --key customer-42
    """
    if (key is None) == (not offsets):
        raise click.UsageError("select messages with --partition and --offset, or with --key")
    if (partition is None) != (not offsets):
        raise click.UsageError("--partition and --offset must be given together: an offset belongs to a partition")

    async def work(client: KafkaClient) -> list[Cancelled]:
        messages = DelayedMessages(client, topic)
        if key is not None:
            return await messages.cancel_key(key.encode(errors="surrogateescape"))
        return await messages.cancel(partition or 0, offsets)

    found = run_client(bootstrap, work)
    echo_list(
        [{"partition": one.partition, "offset": one.offset, "cancelled": one.was_pending} for one in found],
        ["PARTITION", "OFFSET", "CANCELLED"],
        [(one.partition, one.offset, "yes" if one.was_pending else "no, it was not pending") for one in found],
        as_json=as_json,
        nothing="No delayed message has that key.",
    )
