"""`penstock group reset`: where a group goes on, shown first and changed when told to."""

from random import Random

import click

from penstock.cli.common import bootstrap_option, echo_json, echo_table, json_option, parse_start, plural, run
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.client.groups import Groups, busy_group
from penstock.client.offsets import Range, Start, ranges, resolve
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition

_Move = tuple[TopicPartition, int | None, int, Range]
"""A partition, the offset that is committed, the one that is to be, what the partition holds."""


def _start(ctx: click.Context, option: click.Parameter, value: str | None) -> Start | None:
    if value is None:
        return None
    try:
        return parse_start(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("name")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1,…]",
    help="A topic, or some of its partitions. Repeat for more.  [all that the group has committed]",
)
@click.option(
    "--to", callback=_start, metavar="WHERE", help="earliest, latest, an offset, -N for the last N, or a time."
)
@click.option("--shift", type=int, metavar="N", help="So many messages on, or back if negative.")
@click.option("--execute", is_flag=True, help="Do it. Without, only show what would be done.")
@bootstrap_option
@json_option
def reset(
    name: str,
    topics: tuple[str, ...],
    to: Start | None,
    shift: int | None,
    execute: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Set where a group goes on. Its consumers must be stopped. Shows the plan; --execute carries it out.

    \b
    Examples:
      penstock group reset billing --to earliest
      penstock group reset billing --topic orders --to 2026-01-31T12:00:00Z --execute
      penstock group reset billing --topic orders:0,1 --shift -100 --execute
    """
    if (to is None) == (shift is None):
        raise click.UsageError("give either --to or --shift")

    async def work() -> list[_Move]:
        async with KafkaClient(bootstrap, rng=Random()) as client:
            groups = Groups(client)
            await _check_quiet(groups, name)
            moves = await _plan(client, groups, name, topics, to, shift)
            if execute and moves:
                await groups.move(name, {place: offset for place, _, offset, _ in moves})
            return moves

    moves = run(work())
    if not moves:
        raise click.ClickException(f"group {name} has committed nothing; name a topic with --topic")
    if as_json:
        for place, before, after, _ in moves:
            echo_json(
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "before": before,
                    "after": after,
                    "executed": execute,
                }
            )
        return
    echo_table(
        ["TOPIC", "#PARTITION", "#BEFORE", "#AFTER", "#LAG"],
        [(place.topic, place.partition, before, after, held.end - after) for place, before, after, held in moves],
    )
    done = "moved" if execute else "would move (--execute does it)"
    click.echo(f"\n{done}: {plural(len(moves), 'partition')} of group {name}")


async def _check_quiet(groups: Groups, name: str) -> None:
    """A group that does not exist yet may be given offsets to begin at; one with members may not."""
    try:
        detail = await groups.describe(name)
    except ServerError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    else:
        if detail.members:
            raise busy_group(name)


async def _plan(
    client: KafkaClient, groups: Groups, name: str, topics: tuple[str, ...], to: Start | None, shift: int | None
) -> list[_Move]:
    committed = {place: entry.offset for place, entry in (await groups.offsets(name)).items()}
    places = await _places(client, topics) if topics else sorted(committed)
    held = await ranges(client, places)
    if to is not None:
        after = await resolve(client, to, held) if held else {}
    else:
        assert shift is not None
        after = {
            place: min(max(committed.get(place, span.end) + shift, span.start), span.end)
            for place, span in held.items()
        }
    return [(place, committed.get(place), after[place], held[place]) for place in places]


async def _places(client: KafkaClient, topics: tuple[str, ...]) -> list[TopicPartition]:
    found = []
    for text in topics:
        topic, _, numbers = text.partition(":")
        known = await client.topic(topic)
        wanted = [part.strip() for part in numbers.split(",")] if numbers else [str(n) for n in known.partitions]
        for number in wanted:
            if not number.isdecimal() or int(number) not in known.partitions:
                raise click.UsageError(
                    f"topic {topic} has partitions 0 to {len(known.partitions) - 1}, not {number!r}"
                )
            found.append(TopicPartition(topic, int(number)))
    return sorted(found)
