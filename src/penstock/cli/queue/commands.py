"""`penstock queue create|list|purge|delete`: queues and their attributes."""

from typing import Any

import click

from penstock.cli.common import Pairs, echo_list, echo_result, pairs_option, plural
from penstock.cli.deletion import DeletionResult, confirm, echo_deleted
from penstock.cli.queue.access import (
    DELAY,
    QUEUE_WAIT,
    RETENTION,
    VISIBILITY,
    Access,
    access_options,
    duration_option,
    run_sqs,
    to_click_error,
)
from penstock.cli.queue.describe import describe
from penstock.cli.queue.messages import delete_message, receive, send
from penstock.cli.queue.redrive import redrive
from penstock.client.queue_attributes import FIFO_SUFFIX, MESSAGE_COUNTS, NewQueue, message_counts
from penstock.client.sqs import SqsClient, SqsError


@click.group()
def queue() -> None:
    """Manage queues, and send and receive their messages.

    A message goes to one worker at a time and stays in the queue until a worker deletes it. Any AWS SDK for SQS can
    use the same queues, at the brokers' HTTP address.

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
@click.option("--fifo", is_flag=True, help="Create a FIFO queue; the name must end in .fifo.")
@click.option("--content-based-deduplication", is_flag=True, help="Deduplicate messages by their bodies (FIFO).")
@duration_option("--delay", DELAY, "Delay of new messages, like 30s; up to 15m.  [0s]")
@duration_option("--visibility", VISIBILITY, "Visibility timeout of a received message; up to 12h.  [30s]")
@duration_option("--wait", QUEUE_WAIT, "How long a receive waits for messages; up to 20s.  [0s]")
@duration_option("--retention", RETENTION, "How long messages are kept, like 14d.  [4d]")
@click.option("--dead-letter", metavar="QUEUE", help="Dead-letter queue for messages received too often.")
@click.option("--max-receives", type=click.IntRange(1, 1000), help="Receives before a message is dead-lettered.  [5]")
@click.option("--from-topic", metavar="TOPIC", help="Attach the queue to this topic instead of creating one.")
@click.option("--partitions", type=click.IntRange(1, 1000), help="Topic partitions.  [one per broker, up to 8]")
@pairs_option("--tag", "tags", help="A tag. Repeatable.")
@access_options
def create(name: str, access: Access, as_json: bool, tags: Pairs, max_receives: int | None, **options: Any) -> None:
    """Create a queue. Succeeds if a queue with the same attributes already exists.

    \b
    Examples:
      penstock queue create jobs-dead
      penstock queue create jobs --visibility 2m --dead-letter jobs-dead --max-receives 3
      penstock queue create payments.fifo --content-based-deduplication
      penstock queue create audit --from-topic orders
    """
    if max_receives is not None and options["dead_letter"] is None:
        raise click.UsageError("--max-receives needs --dead-letter QUEUE")
    if options["fifo"] and not name.endswith(FIFO_SUFFIX):
        raise click.UsageError(f"the name of a FIFO queue must end in {FIFO_SUFFIX}: {name}{FIFO_SUFFIX}")
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
    url = run_sqs(access, lambda sqs: sqs.create_queue(name, attributes, dict(tags)), name)
    source = f", attached to topic {wanted.from_topic}" if wanted.from_topic else ""
    facts = {"queue": name, "url": url, "attributes": attributes}
    echo_result(facts, f"created queue {name}{source}: {url}", as_json=as_json)


@queue.command(name="list")
@click.option("--prefix", default="", help="Only queues whose names start with this.")
@access_options
def list_(prefix: str, access: Access, as_json: bool) -> None:
    """List queues with their message counts.

    \b
    Examples:
      penstock queue list
      penstock queue list --prefix payments --json
    """

    async def work(sqs: SqsClient) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for name in await sqs.list_queues(prefix):
            try:
                response = await sqs.call("GetQueueAttributes", {"QueueUrl": name, "AttributeNames": ["All"]})
            except SqsError:  # deleted since, or access denied
                continue
            attributes = response["Attributes"]
            kind = "fifo" if "FifoQueue" in attributes else "standard"
            found.append({"queue": name, "type": kind, **message_counts(attributes)})
        return found

    columns = ["QUEUE", "TYPE", "#AVAILABLE", "#IN FLIGHT", "#DELAYED"]
    nothing = "No queues found; create one with `penstock queue create NAME`."
    echo_list(run_sqs(access, work), columns, as_json=as_json, nothing=nothing)


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@access_options
def purge(name: str, yes: bool, access: Access, as_json: bool) -> None:
    """Delete all messages of a queue permanently. Asks for confirmation; without a terminal, --yes is required.

    \b
    Examples:
      penstock queue purge jobs
      penstock queue purge jobs --yes
    """
    confirm(f"Delete all messages of queue {name}?", yes)

    async def work(sqs: SqsClient) -> int:
        names = list(MESSAGE_COUNTS.values())
        response = await sqs.call("GetQueueAttributes", {"QueueUrl": name, "AttributeNames": names})
        await sqs.call("PurgeQueue", {"QueueUrl": name})
        return sum(message_counts(response["Attributes"]).values())

    count = run_sqs(access, work, name)
    text = f"purged queue {name}: about {plural(count, 'message')}"
    echo_result({"queue": name, "purged": count}, text, as_json=as_json)


@queue.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@access_options
def delete(names: tuple[str, ...], yes: bool, access: Access, as_json: bool) -> None:
    """Delete queues and their messages. Asks for confirmation; without a terminal, --yes is required.

    The topic of a queue that was created with --from-topic is not deleted.

    \b
    Examples:
      penstock queue delete jobs
      penstock queue delete jobs jobs-dead --yes
    """
    confirm(f"Delete {', '.join(names)} and all messages?", yes)

    async def work(sqs: SqsClient) -> list[DeletionResult]:
        results: list[DeletionResult] = []
        for name in names:
            try:
                await sqs.call("DeleteQueue", {"QueueUrl": name})
            except SqsError as error:
                results.append((name, to_click_error(error, name).message))
            else:
                results.append((name, None))
        return results

    echo_deleted("queue", run_sqs(access, work), as_json)
