"""`penstock group reset`: plans new committed offsets of a consumer group, and commits them with --execute."""

import click

from penstock.cli.common import cluster_options, echo_list, parse_start, plural, run_client, value_parser
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.client.groups import Groups, busy_group
from penstock.client.offsets import LogRange, Start, log_ranges, resolve_start
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition

_Move = tuple[TopicPartition, int | None, int, LogRange]
"""A tuple: topic-partition, committed offset before the reset, offset after it, and the partition's offset range."""


@click.command()
@click.argument("name")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1,…]",
    help="Only this topic, or some of its partitions. Repeatable.  [all that have committed offsets]",
)
@click.option(
    "--to",
    callback=value_parser(parse_start),
    metavar="WHERE",
    help="New offset: earliest, latest, an offset, -N for the last N, or a time.",
)
@click.option("--shift", type=int, metavar="N", help="Move by N messages forward, or back if negative.")
@click.option("--execute", is_flag=True, help="Commit the new offsets. Without it, only the plan is shown.")
@cluster_options
def reset(
    name: str,
    topics: tuple[str, ...],
    to: Start | None,
    shift: int | None,
    execute: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Reset the committed offsets of a group. Its consumers must be stopped. Shows the plan; --execute runs it.

    \b
    Examples:
      penstock group reset billing --to earliest
      penstock group reset billing --topic orders --to 2026-01-31T12:00:00Z --execute
      penstock group reset billing --topic orders:0,1 --shift -100 --execute
    """
    if (to is None) == (shift is None):
        raise click.UsageError("give either --to or --shift")

    async def work(client: KafkaClient) -> list[_Move]:
        groups = Groups(client)
        await _check_no_members(groups, name)
        moves = await _plan(client, groups, name, topics, to, shift)
        if execute and moves:
            await groups.commit_offsets(name, {tp: offset for tp, _, offset, _ in moves})
        return moves

    moves = run_client(bootstrap, work)
    if not moves:
        raise click.ClickException(f"group {name} has no committed offsets; name a topic with --topic")
    echo_list(
        [
            {"topic": tp.topic, "partition": tp.partition, "before": before, "after": after, "executed": execute}
            for tp, before, after, _ in moves
        ],
        ["TOPIC", "#PARTITION", "#BEFORE", "#AFTER", "#LAG"],
        [(tp.topic, tp.partition, before, after, held.end - after) for tp, before, after, held in moves],
        as_json=as_json,
    )
    if not as_json:
        done = "reset" if execute else "would reset (run with --execute)"
        click.echo(f"\n{done}: {plural(len(moves), 'partition')} of group {name}")


async def _check_no_members(groups: Groups, name: str) -> None:
    """Raises if the group has members. Accepts a group that does not exist: the reset creates it."""
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
    committed = {tp: entry.offset for tp, entry in (await groups.offsets(name)).items()}
    tps = await _find_partitions(client, topics) if topics else sorted(committed)
    held = await log_ranges(client, tps)
    if to is not None:
        after = await resolve_start(client, to, held) if held else {}
    else:
        assert shift is not None
        after = {tp: min(max(committed.get(tp, span.end) + shift, span.start), span.end) for tp, span in held.items()}
    return [(tp, committed.get(tp), after[tp], held[tp]) for tp in tps]


async def _find_partitions(client: KafkaClient, topics: tuple[str, ...]) -> list[TopicPartition]:
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
