"""`penstock queue describe`: a queue's attributes, message counts and dead-letter queue."""

import json
import re
from typing import Any, Final

import click

from penstock.cli.common import echo_json, echo_table, format_bytes, format_time, plural
from penstock.cli.queue.access import Access, access_options, format_seconds, run_sqs
from penstock.client.queue_attributes import message_counts, name_of
from penstock.client.sqs import SqsClient

_SHOWN: Final = (
    ("visibility timeout", "VisibilityTimeout", format_seconds),
    ("delay", "DelaySeconds", format_seconds),
    ("wait", "ReceiveMessageWaitTimeSeconds", format_seconds),
    ("retention", "MessageRetentionPeriod", format_seconds),
    ("message size", "MaximumMessageSize", format_bytes),
    ("partitions", "PenstockPartitions", str),
)
_FIFO: Final = (
    ("content-based deduplication", "ContentBasedDeduplication"),
    ("deduplication scope", "DeduplicationScope"),
    ("throughput limit", "FifoThroughputLimit"),
)


@click.command()
@click.argument("name")
@access_options
def describe(name: str, access: Access, as_json: bool) -> None:
    """Show a queue's message counts and settings. Also the age of its oldest message, and its dead-letter queue.

    \b
    Examples:
      penstock queue describe jobs
      penstock queue describe jobs --json | jq .available
    """

    async def work(sqs: SqsClient) -> tuple[dict[str, str], list[str], dict[str, str], float | None]:
        response = await sqs.call("GetQueueAttributes", {"QueueUrl": name, "AttributeNames": ["All"]})
        sources = await sqs.list_sources(name)
        tags = (await sqs.call("ListQueueTags", {"QueueUrl": name})).get("Tags", {})
        return response["Attributes"], sources, tags, oldest_s(name, await sqs.scrape())

    attributes, sources, tags, age_s = run_sqs(access, work, name)
    policy = json.loads(attributes.get("RedrivePolicy", "{}"))
    dead_letter = name_of(policy["deadLetterTargetArn"]) if policy else None
    counts = message_counts(attributes)
    if as_json:
        echo_json(
            {
                "queue": name,
                "type": "fifo" if "FifoQueue" in attributes else "standard",
                **counts,
                "oldest_s": age_s,
                "dead_letter": dead_letter,
                "max_receives": policy.get("maxReceiveCount"),
                "dead_letters_of": sources,
                "tags": tags,
                "attributes": attributes,
            }
        )
        return
    kind = "FIFO queue" if "FifoQueue" in attributes else "standard queue"
    created = format_time(1000 * int(attributes["CreatedTimestamp"]))
    click.echo(f"{name}: {kind}, created {created}, {attributes['QueueArn']}\n")
    oldest = "-" if age_s is None else format_seconds(age_s)
    echo_table(["#AVAILABLE", "#IN FLIGHT", "#DELAYED", "#OLDEST"], [[*counts.values(), oldest]])
    click.echo()
    echo_table(["SETTING", "VALUE"], _settings(attributes, policy, dead_letter, sources, tags))


def oldest_s(name: str, metrics: list[bytes]) -> float | None:
    """Returns the age, in seconds, of the oldest unfinished message on any broker; None if no broker reports it.

    >>> oldest_s("jobs", [b'penstock_queue_oldest_seconds{queue="jobs"} 2.5'])
    2.5
    """
    line = re.compile(rb'^penstock_queue_oldest_seconds\{queue="%s"\} (\S+)$' % re.escape(name.encode()), re.M)
    found = [float(matched[1]) for text in metrics for matched in line.finditer(text)]
    return max(found, default=None)


def _settings(
    attributes: dict[str, str],
    policy: dict[str, Any],
    dead_letter: str | None,
    sources: list[str],
    tags: dict[str, str],
) -> list[tuple[str, str]]:
    long = attributes.get("PenstockRetentionPeriod")
    response = {**attributes, "MessageRetentionPeriod": long} if long else attributes
    rows = [(label, show(int(response[attribute]))) for label, attribute, show in _SHOWN if attribute in response]
    if "FifoQueue" in attributes:
        rows += [(label, attributes[attribute]) for label, attribute in _FIFO]
    if dead_letter is not None:
        rows.append(("dead letters go to", f"{dead_letter} after {plural(policy['maxReceiveCount'], 'receive')}"))
    if sources:
        rows.append(("dead letters come from", ", ".join(sources)))
    rows += [(f"tag {key}", value) for key, value in sorted(tags.items())]
    return rows
