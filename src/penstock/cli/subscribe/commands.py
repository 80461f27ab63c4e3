"""`penstock subscribe`: prints the messages of a topic, with or without a consumer group."""

import sys

import click

from penstock.cli.common import cluster_options, parse_start, run_client, value_parser
from penstock.cli.message_output import Formatter, formatter
from penstock.client.cluster import KafkaClient
from penstock.client.consumer import Consumer, ConsumerSettings
from penstock.client.offsets import Origin, Start, log_ranges, resolve_start


def _parse_format(text: str) -> Formatter:
    return formatter(text, sys.stdout.isatty())


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    callback=value_parser(parse_start),
    help="Where to start: earliest, latest, an offset, -N for the last N of each partition, or a time.  "
    "[earliest; latest with --follow and no group]",
)
@click.option("--partition", type=click.IntRange(0), help="Only this partition.  [all]")
@click.option("--max", "count_max", type=click.IntRange(1), metavar="N", help="Stop after N messages.")
@click.option("--follow", is_flag=True, help="Keep waiting for new messages until interrupted.")
@click.option("--group", metavar="NAME", help="Join this consumer group and commit each message shown.")
@click.option(
    "--format",
    "show",
    metavar="FORMAT",
    callback=value_parser(_parse_format),
    help="Output format: value, line, json, or a template.  [line on a terminal, else value]",
)
@cluster_options
def subscribe(
    topic: str,
    start: Start | None,
    partition: int | None,
    count_max: int | None,
    follow: bool,
    group: str | None,
    show: Formatter | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Show the messages of a topic. Without --follow, stops at the current end.

    --from accepts earliest, latest, an offset, -N for the last N messages of each partition, and a time: RFC 3339
    (2026-01-31T12:00:00Z), or @ and milliseconds since 1970 (@1767225600000).

    With --group, the members of the group share the partitions, and each message goes to one of them; --from applies
    only if the group has not committed an offset. Without --follow, ends when no message has arrived for 2 s. Ctrl-C
    (exit code 130) and SIGTERM (143) commit the messages shown and leave the group.

    --format value prints the value only; line adds time, partition:offset, key and headers, and escapes control
    characters; json is the same as --json: data that is not UTF-8 is base64, and `encoding` names those fields. A
    template may contain {topic} {partition} {offset} {timestamp} {time} {key} {value} {headers}.

    \b
    Examples:
      penstock subscribe orders
      penstock subscribe orders --follow
      penstock subscribe orders --group billing --follow
      penstock subscribe orders --from 2026-01-31T12:00:00Z --max 10
      penstock subscribe orders --from -5 --format '{partition} {offset} {key} {value}'
      penstock subscribe orders --json | jq .value
    """
    if as_json and show is not None:
        raise click.UsageError("--json and --format both set the output format: give one of them")
    if as_json:
        show = formatter("json", False)
    elif show is None:
        show = formatter(None, sys.stdout.isatty())
    if group is not None and partition is not None:
        raise click.UsageError("a group assigns the partitions: give --group or --partition")
    start = start or Start(Origin.LATEST if follow and group is None else Origin.EARLIEST)
    if follow and sys.stderr.isatty():
        click.echo(f"Waiting for messages in {topic}; Ctrl-C ends.", err=True)
    if group is not None:
        from penstock.cli.subscribe.group import subscribe_in_group

        subscribe_in_group(
            bootstrap, topic, group, start=start, count_max=count_max, follow=follow, show=show, write=_write
        )
        return
    run_client(bootstrap, lambda client: _subscribe(client, topic, start, partition, count_max, follow, show))


async def _subscribe(
    client: KafkaClient,
    topic: str,
    start: Start,
    partition: int | None,
    count_max: int | None,
    follow: bool,
    show: Formatter,
) -> None:
    info = await client.topic(topic)
    names = info.tps if partition is None else [info.partition(partition).tp]
    held = await log_ranges(client, names)
    # Records trimmed while the topic is read are skipped; the rest is still shown.
    consumer = Consumer(client, ConsumerSettings(skip_trimmed=True))
    consumer.assign(await resolve_start(client, start, held))
    ends = {} if follow else {name: span.end for name, span in held.items()}
    left = sys.maxsize if count_max is None else count_max
    try:
        while left > 0:
            for name in consumer.assigned:
                if name in ends and consumer.position(name) >= ends[name]:
                    consumer.drop(name)
            if not consumer.assigned:
                break
            found = [
                (name, record)
                for name, record in await consumer.poll()
                if follow or record.offset < ends[name]  # newer records are not shown
            ][:left]
            left -= len(found)
            if found:
                _write(b"".join([show(name, record) for name, record in found]))
    finally:
        await consumer.close()


def _write(data: bytes) -> None:
    out = sys.stdout.buffer
    out.write(data)
    out.flush()
