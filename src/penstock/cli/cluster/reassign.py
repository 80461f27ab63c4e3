"""`penstock cluster reassign`: other replicas for partitions, or more, or fewer of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import click

from penstock.cli.cluster.moves import Terms, carry_out, move_options, name_of, raise_refused, show, unthrottle
from penstock.cli.cluster.survey import Survey, survey
from penstock.cli.common import bootstrap_option, echo_json, json_option, plural, run
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ClusterAdmin
from penstock.cluster.image import PartitionState, Topic
from penstock.cluster.reassignment import check_replicas, target_of
from penstock.cluster.rebalance_plans import Move, plan_replication
from penstock.foundation.ids import TopicPartition

Wanted = dict[TopicPartition, tuple[int, ...]]


def _parse_partitions(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> Wanted:
    """`orders-0=1,2,3`, several times."""
    wanted: Wanted = {}
    for text in values:
        name, equals, nodes = text.rpartition("=")
        topic, dash, number = name.rpartition("-")
        replicas = [node.strip() for node in nodes.split(",")]
        if not (equals and dash and topic and number.isdecimal() and all(node.isdecimal() for node in replicas)):
            raise click.BadParameter(f"{text!r} is not TOPIC-PARTITION=BROKER,…, for example orders-0=1,2,3")
        wanted[TopicPartition(topic, int(number))] = tuple(map(int, replicas))
    return wanted


def read_plan(text: str) -> Wanted:
    """A plan in the form of Kafka's tool. ValueError says what is wrong."""
    try:
        plan: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(plan, dict) or plan.get("version") != 1 or not isinstance(plan.get("partitions"), list):
        raise ValueError('expected {"version": 1, "partitions": [{"topic": …, "partition": …, "replicas": […]}, …]}')
    wanted: Wanted = {}
    for entry in plan["partitions"]:
        match entry:
            case {"topic": str(topic), "partition": int(number), "replicas": list(nodes)} if all(
                isinstance(node, int) for node in nodes
            ):
                name = TopicPartition(topic, number)
            case _:
                raise ValueError(f"a partition has a topic, a number and a list of replicas, got {json.dumps(entry)}")
        if name in wanted:
            raise ValueError(f"partition {name} stands in it twice")
        wanted[name] = tuple(nodes)
    return wanted


def _parse_file(ctx: click.Context, option: click.Parameter, path: Path | None) -> Wanted | None:
    if path is None:
        return None
    try:
        return read_plan(path.read_text())
    except ValueError as error:
        raise click.BadParameter(f"{path}: {error}") from error


@click.command()
@click.option("--replication-factor", type=click.IntRange(1, 32767), help="So many replicas for every partition.")
@click.option("--topic", "topics", multiple=True, help="Only this topic. Repeat for more.  [all]")
@click.option("--internal", is_flag=True, help="Also the cluster's own topics, if none is named.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="TOPIC-N=ID,…",
    callback=_parse_partitions,
    help="Exactly these replicas, the preferred leader first. Repeat for more.",
)
@click.option(
    "--file",
    "plan",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    callback=_parse_file,
    help="A plan in the JSON of Kafka's own tool.",
)
@click.option("--cancel", is_flag=True, help="Take back moves that are under way, of all topics or of those named.")
@click.option("--unthrottle", "lift", is_flag=True, help="Lift every throttle that was set, here or by Kafka's tool.")
@move_options
@bootstrap_option
@json_option
def reassign(
    replication_factor: int | None,
    topics: tuple[str, ...],
    internal: bool,
    partitions: Wanted,
    plan: Wanted | None,
    cancel: bool,
    lift: bool,
    execute: bool,
    no_wait: bool,
    throttle: int | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Give partitions other replicas, or more or fewer of them. Shows the plan; --execute carries it out.

    New replicas are copied beside the old ones, which go when the new ones are in sync: nothing is unavailable
    meanwhile. --json shows the plan in a form that --file takes, and Kafka's own tool.

    \b
    Examples:
      penstock cluster reassign --replication-factor 3 --topic orders
      penstock cluster reassign --replication-factor 3 --internal --execute --throttle 20000000
      penstock cluster reassign --partition orders-0=1,2,3 --partition orders-1=2,3,1 --execute
      penstock cluster reassign --file plan.json --execute
      penstock cluster reassign --cancel --execute
    """
    ways = [replication_factor is not None, bool(partitions), plan is not None, cancel, lift]
    if sum(ways) != 1:
        raise click.UsageError(
            "say what to do: one of --replication-factor, --partition, --file, --cancel and --unthrottle"
        )
    terms = Terms(execute=execute, wait=not no_wait, throttle=throttle, as_json=as_json)

    async def work() -> None:
        async with KafkaClient(bootstrap, rng=Random()) as client:
            if lift:
                await _lift(client, terms)
                return
            found = await survey(client)
            chosen = _chosen(found, topics, internal or cancel)
            if cancel:
                await cancel_moves(found, _cancelled(found, chosen), terms)
            elif replication_factor is not None:
                await carry_out(client, found, plan_replication(found.image, chosen, replication_factor), terms)
            else:
                await carry_out(client, found, explicit(found, partitions or plan or {}), terms)

    run(work())


def _chosen(found: Survey, names: Sequence[str], internal: bool) -> list[Topic]:
    if names:
        return [found.topic(name) for name in names]
    return [topic for topic in found.image.by_name.values() if internal or not topic.is_internal]


def explicit(found: Survey, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> list[Move]:
    """Moves to replicas that somebody has chosen. Refuses those that cannot be.

    One that is under way already is among them: so it can be waited for again, or be throttled otherwise.
    """
    moves = []
    for name, replicas in wanted.items():
        place = found.place(name)
        check_replicas(found.image, replicas)
        state = found.image.topics[place.topic_id].partitions[place.number]
        before = target_of(state)
        if before == replicas and state.is_reassigned:
            before = origin_of(state)
        if before != replicas:
            moves.append(Move(place=place, topic=name.topic, before=before, after=replicas))
    return moves


def _cancelled(found: Survey, topics: Sequence[Topic]) -> list[Move]:
    chosen = {topic.topic_id for topic in topics}
    return [
        backwards(found, place.topic_id, place.number)
        for place, _ in found.image.placed(lambda state: state.is_reassigned)
        if place.topic_id in chosen
    ]


def backwards(found: Survey, topic_id: bytes, number: int) -> Move:
    """From where a partition is on its way to, back to where it was."""
    topic = found.image.topics[topic_id]
    state = topic.partitions[number]
    return Move(
        place=found.place(TopicPartition(topic.name, number)),
        topic=topic.name,
        before=target_of(state),
        after=origin_of(state),
    )


def origin_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas that a partition had before its reassignment."""
    return tuple(node for node in state.replicas if node not in state.adding)


async def cancel_moves(found: Survey, moves: Sequence[Move], terms: Terms) -> None:
    if terms.as_json or moves:
        await show(found, moves, terms)
    if not moves:
        terms.say("Nothing is under way.")
    elif not terms.execute:
        terms.say("Nothing was done; give --execute to do it.")
    else:
        raise_refused(await found.admin.reassign({name_of(move): None for move in moves}))
        terms.say(f"Took back {plural(len(moves), 'move')}.")


async def _lift(client: KafkaClient, terms: Terms) -> None:
    """Harmless, and done at once: nothing is lost by it."""
    count = await unthrottle(client, ClusterAdmin(client))
    if terms.as_json:
        echo_json({"topics": count})
    terms.say(f"Lifted the throttle of {plural(count, 'topic')} and of all brokers.")
