"""Plans of moves: shown, and carried out if that is wanted; throttled meanwhile, and followed to their end."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from penstock.cli.cluster.survey import Survey
from penstock.cli.common import echo_json, echo_table, format_bytes, plural
from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ClusterAdmin, ConfigChange, Failures, Reassignment, Resource
from penstock.client.errors import ServerError
from penstock.cluster.rebalance_plans import Move, throttled_replicas
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.log.setting_table import FOLLOWER_THROTTLED, LEADER_THROTTLED
from penstock.replication.settings import FOLLOWER_RATE, LEADER_RATE

POLL_S: Final = 0.5
SETTLE_TRIES: Final = 20
"""A broker may show a moment later what the controller has written."""
NAMED_MAX: Final = 5
"""Partitions that an error names one by one."""
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is to become of a plan."""

    execute: bool
    wait: bool
    throttle: int | None
    as_json: bool

    def say(self, text: str) -> None:
        """For people: not where a script reads."""
        if not self.as_json:
            click.echo(text)


def move_options(command: Command) -> Command:
    """--execute, --no-wait and --throttle."""
    for option in (
        click.option(
            "--throttle",
            type=click.IntRange(1),
            metavar="BYTES_PER_S",
            help="How fast each broker may send, and get, what is copied. Lifted when all is moved.",
        ),
        click.option("--no-wait", is_flag=True, help="Begin, and do not wait until all is moved."),
        click.option("--execute", is_flag=True, help="Do it. Without this, only the plan is shown."),
    ):
        command = option(command)
    return command


def name_of(move: Move) -> TopicPartition:
    return TopicPartition(move.topic, move.place.number)


def as_kafka_json(moves: Iterable[Move]) -> dict[str, object]:
    """A plan in the form of Kafka's own tool; `reassign --file` takes it too."""
    return {
        "version": 1,
        "partitions": [
            {"topic": move.topic, "partition": move.place.number, "replicas": list(move.after)} for move in moves
        ],
    }


async def show(found: Survey, moves: Sequence[Move], terms: Terms) -> None:
    """The plan, and what it costs."""
    if terms.as_json:
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


async def carry_out(client: KafkaClient, found: Survey, moves: Sequence[Move], terms: Terms) -> bool:
    """Show a plan and, if it is to be executed, do it; whether all of it is done."""
    if terms.as_json or moves:
        await show(found, moves, terms)
    if not moves:
        terms.say("Nothing to do.")
        return terms.execute
    if not terms.execute:
        terms.say("Nothing was done; give --execute to do it.")
        return False
    if terms.throttle is not None:
        await _throttle(found, moves, terms.throttle)
    failures = await found.admin.reassign({name_of(move): move.after for move in moves})
    begun = [move for move in moves if name_of(move) not in failures]
    if terms.wait or not begun:
        await _follow(found, begun, terms)
        if terms.throttle is not None:
            await unthrottle(client, found.admin, {move.topic for move in moves})
        await _verify(client, begun, terms)
    elif terms.throttle is not None:
        terms.say("The throttle stays until you lift it with `penstock cluster reassign --unthrottle`.")
    if not terms.wait:
        terms.say(f"Began to move {plural(len(begun), 'partition')}; `penstock cluster status` shows how far it is.")
    raise_refused(failures)
    return terms.wait


def raise_refused(failures: Failures) -> None:
    if failures:
        said = "; ".join(str(error) for error in list(failures.values())[:NAMED_MAX])
        more = f"; and {len(failures) - NAMED_MAX} more" if len(failures) > NAMED_MAX else ""
        code = next(iter(failures.values())).code
        raise ServerError(code, f"{plural(len(failures), 'partition')} refused: {said}{more}")


# -- following


async def _follow(found: Survey, moves: Sequence[Move], terms: Terms) -> None:
    """Wait until nothing of this is under way any more."""
    names = [name_of(move) for move in moves]
    try:
        with _progress(len(names), terms) as tell:
            while under_way := await found.admin.reassignments(names):
                sizes = await found.admin.sizes(found.image.brokers, list(under_way))
                shares = [_share(move, sizes) for move in under_way.values()]
                tell(len(names) - len(under_way), sum(shares))
                await asyncio.sleep(POLL_S)
            tell(len(names), 0.0)
    except asyncio.CancelledError:
        click.echo(
            "The moves go on; `penstock cluster status` shows how far they are, `penstock cluster reassign --cancel` "
            "takes them back, `--unthrottle` lifts a throttle.",
            err=True,
        )
        raise


def _share(move: Reassignment, sizes: dict[int, dict[TopicPartition, int]]) -> float:
    """How much of one move is done, by the bytes that the new replicas have."""
    old = [node for node in move.replicas if node not in move.adding]
    whole = max((sizes.get(node, {}).get(move.name, 0) for node in old), default=0)
    if not whole or not move.adding:
        return 0.0
    have = sum(min(whole, sizes.get(node, {}).get(move.name, 0)) for node in move.adding)
    return have / (whole * len(move.adding))


@contextmanager
def _progress(total: int, terms: Terms) -> Iterator[Callable[[int, float], None]]:
    """A bar on a terminal, lines elsewhere: `tell(done, share)`, with what is done of the others."""
    if terms.as_json:
        yield lambda done, share: None
        return
    if not sys.stderr.isatty():
        last = -1

        def tell(done: int, share: float) -> None:
            nonlocal last
            if done != last:
                last = done
                click.echo(f"moved {done} of {plural(total, 'partition')}")

        yield tell
        return
    from rich.console import Console  # only those who draw pay for it
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = TextColumn("moving"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[done]}")
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("moving", total=total, done="")
        yield lambda done, share: progress.update(task, completed=done + share, done=f"{done} of {total}")


async def _verify(client: KafkaClient, moves: Sequence[Move], terms: Terms) -> None:
    """See that all is where it should be: somebody else may have wanted something else meanwhile."""
    wanted = {name_of(move): move.after for move in moves}
    for _ in range(SETTLE_TRIES):
        topics = {topic.name: topic for topic in await Admin(client).topics()}
        wrong = {
            name: lies
            for name, after in wanted.items()
            if name.topic in topics and (lies := topics[name.topic].partition(name.partition).replicas) != after
        }
        if not wrong:
            terms.say(f"Moved {plural(len(moves), 'partition')}.")
            if terms.as_json:
                echo_json({"moved": len(moves)})
            return
        await asyncio.sleep(POLL_S / 5)
    name, lies = next(iter(wrong.items()))
    raise ServerError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{plural(len(wrong), 'partition')} not moved: {name} lies on {','.join(map(str, lies))} and not on "
        f"{','.join(map(str, wanted[name]))}; somebody has cancelled or changed it meanwhile",
    )


# -- the throttle


async def _throttle(found: Survey, moves: Sequence[Move], rate: int) -> None:
    """Name what is moved, in the topics' settings, and the rate, in those of every broker that takes part."""
    taking_part = {node for move in moves if move.copies for node in (*move.before, *move.after)}
    changes = [
        ConfigChange(kind=Resource.TOPIC, name=topic, values={LEADER_THROTTLED: senders, FOLLOWER_THROTTLED: getters})
        for topic, (senders, getters) in throttled_replicas(moves).items()
    ]
    changes += [
        ConfigChange(kind=Resource.BROKER, name=str(node), values={LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)})
        for node in sorted(taking_part & found.image.brokers.keys())
    ]
    await found.admin.alter_configs(changes)


async def unthrottle(client: KafkaClient, admin: ClusterAdmin, topics: Iterable[str] | None = None) -> int:
    """Bring the settings of throttles back to their defaults, of these topics or of all; how many topics had some."""
    there = [topic.name for topic in await Admin(client).topics()]
    named = there if topics is None else sorted(set(topics).intersection(there))
    found = await admin.configs(Resource.TOPIC, named, [LEADER_THROTTLED, FOLLOWER_THROTTLED])
    throttled = [topic for topic, values in found.items() if any(values.values())]
    changes = [
        ConfigChange(kind=Resource.TOPIC, name=topic, values={LEADER_THROTTLED: None, FOLLOWER_THROTTLED: None})
        for topic in throttled
    ]
    changes += [
        ConfigChange(kind=Resource.BROKER, name=str(node), values={LEADER_RATE: None, FOLLOWER_RATE: None})
        for node in (await admin.describe()).brokers
    ]
    await admin.alter_configs(changes)
    return len(throttled)
