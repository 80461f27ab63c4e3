"""Runs reassignment plans: shows a plan, sets throttles, starts the moves, follows their progress, verifies them."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import click

from penstock.cli.cluster.survey import Survey
from penstock.cli.common import Command, echo_json, echo_table, format_bytes, plural
from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ClusterAdmin, Failures, Reassignment
from penstock.client.configs import ConfigChange, Resource
from penstock.client.errors import ServerError
from penstock.cluster.rebalance_plans import Move, throttled_replicas
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.log.setting_table import FOLLOWER_THROTTLED, LEADER_THROTTLED
from penstock.replication.settings import FOLLOWER_RATE, LEADER_RATE

POLL_S: Final = 0.5
SETTLE_TRIES: Final = 20
"""Maximum number of checks whether finished moves have the planned replicas: broker metadata may be outdated."""
NAMED_MAX: Final = 5
"""Maximum number of refused partitions that an error message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options of how a reassignment plan is executed and printed."""

    execute: bool
    wait: bool
    throttle: int | None
    as_json: bool

    def echo(self, text: str) -> None:
        """Prints a line of text, unless --json is given."""
        if not self.as_json:
            click.echo(text)


def move_options(command: Command) -> Command:
    """Decorator that adds the options --execute, --no-wait and --throttle to a command."""
    for option in (
        click.option(
            "--throttle",
            type=click.IntRange(1),
            metavar="BYTES_PER_S",
            help="Replication rate limit per broker. Removed when the moves are done.",
        ),
        click.option("--no-wait", is_flag=True, help="Start the moves, and do not wait for them."),
        click.option("--execute", is_flag=True, help="Run the plan. Without it, the plan is only shown."),
    ):
        command = option(command)
    return command


def name_of(move: Move) -> TopicPartition:
    return TopicPartition(move.topic, move.tp.partition)


def as_kafka_json(moves: Iterable[Move]) -> dict[str, object]:
    """Returns the moves as a plan in the JSON format of kafka-reassign-partitions, which `reassign --file` reads."""
    return {
        "version": 1,
        "partitions": [
            {"topic": move.topic, "partition": move.tp.partition, "replicas": list(move.after)} for move in moves
        ],
    }


async def show(found: Survey, moves: Sequence[Move], options: PlanOptions) -> None:
    """Prints a reassignment plan: the replicas before and after each move, and how many bytes are copied."""
    if options.as_json:
        echo_json(as_kafka_json(moves))
        return
    echo_table(
        ["PARTITION", "NOW", "THEN"],
        [(name_of(move), ",".join(map(str, move.before)), ",".join(map(str, move.after))) for move in moves],
    )
    copies = sum(move.copies for move in moves)
    cost = "nothing is copied"
    if copies:
        sizes = await found.admin.sizes(found.image.brokers, [name_of(move) for move in moves if move.copies])
        held = {
            name: max(table.get(name, 0) for table in sizes.values())
            for name in {name for table in sizes.values() for name in table}
        }
        copied = sum(move.copies * held.get(name_of(move), 0) for move in moves)
        cost = f"{plural(copies, 'replica')} copied ({format_bytes(copied)})"
    click.echo(f"\n{plural(len(moves), 'partition')} changed, {cost}")


async def run_plan(client: KafkaClient, found: Survey, moves: Sequence[Move], options: PlanOptions) -> bool:
    """Shows a reassignment plan, and runs it if `options.execute`. Returns True if all its moves are complete."""
    if options.as_json or moves:
        await show(found, moves, options)
    if not moves:
        options.echo("Nothing to do.")
        return options.execute
    if not options.execute:
        options.echo("Nothing was changed; run with --execute.")
        return False
    if options.throttle is not None:
        await _throttle(found, moves, options.throttle)
    failures = await found.admin.reassign({name_of(move): move.after for move in moves})
    begun = [move for move in moves if name_of(move) not in failures]
    if options.wait or not begun:
        await _follow(found, begun, options)
        if options.throttle is not None:
            await unthrottle(client, found.admin, {move.topic for move in moves})
        await _verify(client, begun, options)
    elif options.throttle is not None:
        options.echo("The throttle stays; `penstock cluster reassign --unthrottle` removes it.")
    if not options.wait:
        options.echo(f"Started to move {plural(len(begun), 'partition')}; `penstock cluster status` shows progress.")
    raise_refused(failures)
    return options.wait


def raise_refused(failures: Failures) -> None:
    if failures:
        listed = "; ".join(str(error) for error in list(failures.values())[:NAMED_MAX])
        more = f"; and {len(failures) - NAMED_MAX} more" if len(failures) > NAMED_MAX else ""
        code = next(iter(failures.values())).code
        raise ServerError(code, f"{plural(len(failures), 'partition')} refused: {listed}{more}")


# -- following


async def _follow(found: Survey, moves: Sequence[Move], options: PlanOptions) -> None:
    """Shows the progress of the moves; returns when none of them is in progress."""
    names = [name_of(move) for move in moves]
    try:
        with _progress(len(names), options) as update:
            while under_way := await found.admin.reassignments(names):
                sizes = await found.admin.sizes(found.image.brokers, list(under_way))
                fractions = [_copied_fraction(move, sizes) for move in under_way.values()]
                update(len(names) - len(under_way), sum(fractions))
                await asyncio.sleep(POLL_S)
            update(len(names), 0.0)
    except asyncio.CancelledError:
        click.echo(
            "The moves continue; `penstock cluster status` shows progress, `penstock cluster reassign --cancel` "
            "cancels them, `--unthrottle` removes the throttle.",
            err=True,
        )
        raise


def _copied_fraction(move: Reassignment, sizes: dict[int, dict[TopicPartition, int]]) -> float:
    """Returns the fraction, from 0 to 1, of a partition's bytes that its new replicas have copied."""
    old = [node for node in move.replicas if node not in move.adding]
    whole = max((sizes.get(node, {}).get(move.tp, 0) for node in old), default=0)
    if not whole or not move.adding:
        return 0.0
    have = sum(min(whole, sizes.get(node, {}).get(move.tp, 0)) for node in move.adding)
    return have / (whole * len(move.adding))


@contextmanager
def _progress(total: int, options: PlanOptions) -> Iterator[Callable[[int, float], None]]:
    """Yields a function that shows the progress of `total` partition reassignments. Its arguments: the number of
    finished reassignments, and the sum of the fractions (0 to 1) that the others have copied."""
    if options.as_json:
        yield lambda done, share: None
        return
    if not sys.stderr.isatty():
        last = -1

        def update(done: int, share: float) -> None:
            nonlocal last
            if done != last:
                last = done
                click.echo(f"moved {done} of {plural(total, 'partition')}")

        yield update
        return
    from rich.console import Console  # imported here: it is slow to import
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = TextColumn("moving"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[done]}")
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("moving", total=total, done="")
        yield lambda done, share: progress.update(task, completed=done + share, done=f"{done} of {total}")


async def _verify(client: KafkaClient, moves: Sequence[Move], options: PlanOptions) -> None:
    """Raises if the replicas of a moved partition differ from the plan: another client may have changed them."""
    wanted = {name_of(move): move.after for move in moves}
    for _ in range(SETTLE_TRIES):
        topics = {topic.name: topic for topic in await Admin(client).topics()}
        wrong = {
            name: actual
            for name, after in wanted.items()
            if name.topic in topics and (actual := topics[name.topic].partition(name.partition).replicas) != after
        }
        if not wrong:
            options.echo(f"Moved {plural(len(moves), 'partition')}.")
            if options.as_json:
                echo_json({"moved": len(moves)})
            return
        await asyncio.sleep(POLL_S / 5)
    name, actual = next(iter(wrong.items()))
    raise ServerError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{plural(len(wrong), 'partition')} not moved: the replicas of {name} are {','.join(map(str, actual))}, "
        f"expected {','.join(map(str, wanted[name]))}; another client has cancelled or changed the move",
    )


# -- the throttle


async def _throttle(found: Survey, moves: Sequence[Move], rate: int) -> None:
    """Limits the replication of `moves` to `rate` bytes per second, with Kafka's throttle settings."""
    participants = {node for move in moves if move.copies for node in (*move.before, *move.after)}
    changes = [
        ConfigChange(kind=Resource.TOPIC, name=topic, values={LEADER_THROTTLED: senders, FOLLOWER_THROTTLED: getters})
        for topic, (senders, getters) in throttled_replicas(moves).items()
    ]
    changes += [
        ConfigChange(kind=Resource.BROKER, name=str(node), values={LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)})
        for node in sorted(participants & found.image.brokers.keys())
    ]
    await found.admin.alter_configs(changes)


async def unthrottle(client: KafkaClient, admin: ClusterAdmin, topics: Iterable[str] | None = None) -> int:
    """Removes throttles from `topics` (None: all topics); returns how many of them were throttled.

    The rates of all brokers are removed, too, unless another topic is still throttled.
    """
    there = [topic.name for topic in await Admin(client).topics()]
    found = await admin.configs(Resource.TOPIC, there, [LEADER_THROTTLED, FOLLOWER_THROTTLED])
    throttled = {topic for topic, values in found.items() if any(values.values())}
    freed = throttled if topics is None else throttled.intersection(topics)
    changes = [
        ConfigChange(kind=Resource.TOPIC, name=topic, values={LEADER_THROTTLED: None, FOLLOWER_THROTTLED: None})
        for topic in sorted(freed)
    ]
    if freed == throttled:
        changes += [
            ConfigChange(kind=Resource.BROKER, name=str(node), values={LEADER_RATE: None, FOLLOWER_RATE: None})
            for node in (await admin.describe()).brokers
        ]
    await admin.alter_configs(changes)
    return len(freed)
