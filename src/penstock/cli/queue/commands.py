"""`penstock queue`: queues made, listed, purged and deleted; messages.py sends and receives."""

from typing import Any

import click

from penstock.cli.common import echo_json, echo_table, json_option, parse_pairs, plural
from penstock.cli.deletion import ask_first
from penstock.cli.queue.access import (
    DELAY,
    QUEUE_WAIT,
    RETENTION,
    VISIBILITY,
    Access,
    access_options,
    ask,
    duration_option,
    refused,
)
from penstock.cli.queue.describe import describe
from penstock.cli.queue.messages import delete_message, receive, send
from penstock.cli.queue.redrive import redrive
from penstock.client.queue_attributes import FIFO_SUFFIX, NewQueue, name_of
from penstock.client.sqs import SqsClient, SqsRefused

COUNTS = (
    ("available", "ApproximateNumberOfMessages"),
    ("in_flight", "ApproximateNumberOfMessagesNotVisible"),
    ("delayed", "ApproximateNumberOfMessagesDelayed"),
)


@click.group()
def queue() -> None:
    """Create, list, describe, fill, work off, purge, redrive and delete queues.

    A message of a queue goes to one worker, and stays until a worker has deleted it. Any AWS SDK for SQS can use the
    same queues, at the brokers' HTTP address.

    \b
    Examples:
      penstock queue create jobs
      penstock queue send jobs '{"id": 1}'
      penstock queue receive jobs --delete
      penstock queue describe jobs
    """


for each in (describe, send, receive, delete_message, redrive):
    queue.add_command(each)


@queue.command()
@click.argument("name")
@click.option("--fifo", is_flag=True, help="In order and without duplicates; the name ends in .fifo.")
@click.option("--content-based-deduplication", is_flag=True, help="Equal bodies within five minutes are one message.")
@duration_option("--delay", DELAY, "How long a new message waits, like 30s; up to 15m.  [0s]")
@duration_option("--visibility", VISIBILITY, "How long a receiver has for a message; up to 12h.  [30s]")
@duration_option("--wait", QUEUE_WAIT, "How long a receive waits for a message; up to 20s.  [0s]")
@duration_option("--retention", RETENTION, "How long a message is kept, like 14d.  [4d]")
@click.option("--dead-letter", metavar="QUEUE", help="Where messages go that were received too often.")
@click.option("--max-receives", type=click.IntRange(1, 1000), help="How often is too often.  [5]")
@click.option("--from-topic", metavar="TOPIC", help="Work off this topic, instead of one of its own.")
@click.option("--partitions", type=click.IntRange(1, 1000), help="Of its topic.  [one a broker, up to 8]")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=parse_pairs, help="Repeat for more.")
@access_options
@json_option
def create(
    name: str, access: Access, as_json: bool, tags: list[tuple[str, str]], max_receives: int | None, **options: Any
) -> None:
    """Make a queue. One that is there already and is the same will do.

    \b
    Examples:
      penstock queue create jobs-dead
      penstock queue create jobs --visibility 2m --dead-letter jobs-dead --max-receives 3
      penstock queue create payments.fifo --content-based-deduplication
      penstock queue create audit --from-topic orders
    """
    if max_receives is not None and options["dead_letter"] is None:
        raise click.UsageError("--max-receives counts for nothing without --dead-letter QUEUE")
    if options["fifo"] and not name.endswith(FIFO_SUFFIX):
        raise click.UsageError(f"the name of a FIFO queue ends in {FIFO_SUFFIX}: {name}{FIFO_SUFFIX}")
    wanted = NewQueue(
        fifo=name.endswith(FIFO_SUFFIX),
        delay_s=options["delay"],
        visibility_s=options["visibility"],
        wait_s=options["wait"],
        retention_s=options["retention"],
        dead_letter=options["dead_letter"],
        max_receives=max_receives,
        from_topic=options["from_topic"],
        partitions=options["partitions"],
        content_based_deduplication=options["content_based_deduplication"],
    )
    attributes = wanted.attributes()

    async def work(sqs: SqsClient) -> str:
        params: dict[str, Any] = {"QueueName": name, "Attributes": attributes}
        told = await sqs.call("CreateQueue", {**params, "tags": dict(tags)} if tags else params)
        return str(told["QueueUrl"])

    url = ask(access, work, name)
    if as_json:
        echo_json({"queue": name, "url": url, "attributes": attributes})
    else:
        source = f", attached to topic {wanted.from_topic}" if wanted.from_topic else ""
        click.echo(f"created queue {name}{source}: {url}")


@queue.command(name="list")
@click.option("--prefix", default="", help="Only queues whose names begin so.")
@access_options
@json_option
def list_(prefix: str, access: Access, as_json: bool) -> None:
    """List queues with how many messages they have.

    \b
    Examples:
      penstock queue list
      penstock queue list --prefix payments --json
    """

    async def work(sqs: SqsClient) -> list[dict[str, Any]]:
        rows = []
        for name in await _names(sqs, prefix):
            try:
                told = await sqs.call("GetQueueAttributes", {"QueueUrl": name, "AttributeNames": ["All"]})
            except SqsRefused:  # gone since, or not ours to see
                continue
            attributes = told["Attributes"]
            counts = {state: int(attributes[attribute]) for state, attribute in COUNTS}
            rows.append({"queue": name, "type": "fifo" if "FifoQueue" in attributes else "standard", **counts})
        return rows

    rows = ask(access, work)
    if as_json:
        for row in rows:
            echo_json(row)
    elif rows:
        header = ["QUEUE", "TYPE", "#AVAILABLE", "#IN FLIGHT", "#DELAYED"]
        echo_table(header, [list(row.values()) for row in rows])
    else:
        click.echo("There are no such queues; make one with `penstock queue create NAME`.", err=True)


async def _names(sqs: SqsClient, prefix: str) -> list[str]:
    found: list[str] = []
    params = {"QueueNamePrefix": prefix} if prefix else {}
    while True:
        told = await sqs.call("ListQueues", params)
        found += map(name_of, told.get("QueueUrls", ()))
        if not told.get("NextToken"):
            return found
        params = {**params, "NextToken": told["NextToken"]}


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@access_options
@json_option
def purge(name: str, yes: bool, access: Access, as_json: bool) -> None:
    """Drop all messages of a queue for good. Asks first; where nobody can be asked, --yes is needed.

    \b
    Examples:
      penstock queue purge jobs
      penstock queue purge jobs --yes
    """
    ask_first(f"Drop all messages of queue {name}?", yes)

    async def work(sqs: SqsClient) -> int:
        names = [attribute for _, attribute in COUNTS]
        told = await sqs.call("GetQueueAttributes", {"QueueUrl": name, "AttributeNames": names})
        await sqs.call("PurgeQueue", {"QueueUrl": name})
        return sum(int(told["Attributes"][each]) for each in names)

    count = ask(access, work, name)
    if as_json:
        echo_json({"queue": name, "purged": count})
    else:
        click.echo(f"purged queue {name}: about {plural(count, 'message')}")


@queue.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@access_options
@json_option
def delete(names: tuple[str, ...], yes: bool, access: Access, as_json: bool) -> None:
    """Delete queues with everything in them. Asks first; where nobody can be asked, --yes is needed.

    The topic of a queue that was made with --from-topic stays.

    \b
    Examples:
      penstock queue delete jobs
      penstock queue delete jobs jobs-dead --yes
    """
    them = "it" if len(names) == 1 else "them"
    ask_first(f"Delete {', '.join(names)} with everything in {them}?", yes)

    async def work(sqs: SqsClient) -> list[tuple[str, str | None]]:
        results: list[tuple[str, str | None]] = []
        for name in names:
            try:
                await sqs.call("DeleteQueue", {"QueueUrl": name})
            except SqsRefused as error:
                results.append((name, refused(error, name).message))
            else:
                results.append((name, None))
        return results

    failures = []
    for name, failure in ask(access, work):
        if failure is not None:
            failures.append(failure)
        if as_json:
            echo_json({"queue": name, "deleted": failure is None, "error": failure})
        elif failure is None:
            click.echo(f"deleted queue {name}")
    if failures:
        raise click.ClickException("; ".join(failures))
