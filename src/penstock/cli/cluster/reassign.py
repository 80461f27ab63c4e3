"""`penstock cluster reassign`: changes the replicas or the replication factor of partitions."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from penstock.cli.cluster.moves import PlanOptions, move_options, name_of, raise_refused, run_plan, show, unthrottle
from penstock.cli.cluster.survey import Survey, survey
from penstock.cli.common import cluster_options, echo_json, plural, run_client, value_parser
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ClusterAdmin
from penstock.cluster.image import PartitionState, Topic
from penstock.cluster.reassignment import check_replicas, target_replicas
from penstock.cluster.rebalance_plans import Move, plan_replication
from penstock.foundation.ids import TopicPartition

Wanted = dict[TopicPartition, tuple[int, ...]]


def _parse_partitions(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> Wanted:
    """Parses repeated options such as `orders-0=1,2,3`; raises click.BadParameter."""
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
    """Parses a reassignment plan in the JSON format of kafka-reassign-partitions; raises ValueError."""
    try:
        plan: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from error
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
                raise ValueError(f"expected topic, partition number and list of replicas, got {json.dumps(entry)}")
        if name in wanted:
            raise ValueError(f"partition {name} is listed twice")
        wanted[name] = tuple(nodes)
    return wanted


def _read_file(path: Path) -> Wanted:
    try:
        return read_plan(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@click.command()
@click.option("--replication-factor", type=click.IntRange(1, 32767), help="Number of replicas per partition.")
@click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable.  [all]")
@click.option("--internal", is_flag=True, help="Include internal topics, unless --topic is given.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="TOPIC-N=ID,…",
    callback=_parse_partitions,
    help="Exact replicas of a partition, preferred leader first. Repeatable.",
)
@click.option(
    "--file",
    "plan",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    callback=value_parser(_read_file),
    help="Plan in the JSON format of kafka-reassign-partitions.",
)
@click.option("--cancel", is_flag=True, help="Cancel reassignments in progress, of all topics or of --topic.")
@click.option("--unthrottle", "lift", is_flag=True, help="Remove all throttles, also those of Kafka's tools.")
@move_options
@cluster_options
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
    """Change replicas or the replication factor. Shows the plan; --execute runs it.

    Old replicas are removed when the new ones are in sync: partitions stay available throughout. --json prints the
    plan in the format of kafka-reassign-partitions, which --file reads.

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
            "give exactly one of --replication-factor, --partition, --file, --cancel and --unthrottle"
        )
    options = PlanOptions(execute=execute, wait=not no_wait, throttle=throttle, as_json=as_json)

    async def work(client: KafkaClient) -> None:
        if lift:
            await _lift_throttle(client, options)
            return
        found = await survey(client)
        chosen = _select_topics(found, topics, internal or cancel)
        if cancel:
            await cancel_moves(found, _plan_cancellation(found, chosen), options)
        elif replication_factor is not None:
            await run_plan(client, found, plan_replication(found.image, chosen, replication_factor), options)
        else:
            await run_plan(client, found, plan_explicit(found, partitions or plan or {}), options)

    run_client(bootstrap, work)


def _select_topics(found: Survey, names: Sequence[str], internal: bool) -> list[Topic]:
    if names:
        return [found.topic(name) for name in names]
    return [topic for topic in found.image.by_name.values() if internal or not topic.is_internal]


def plan_explicit(found: Survey, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> list[Move]:
    """Returns the moves that give each partition its replicas in `wanted`; raises if a broker or partition is
    unknown. Includes reassignments in progress to these replicas, which the caller can await or throttle."""
    moves = []
    for name, replicas in wanted.items():
        tp = found.resolve(name)
        check_replicas(found.image, replicas)
        state = found.image.topics[tp.topic_id].partitions[tp.partition]
        before = target_replicas(state)
        if before == replicas and state.is_reassigned:
            before = origin_of(state)
        if before != replicas:
            moves.append(Move(tp=tp, topic=name.topic, before=before, after=replicas))
    return moves


def _plan_cancellation(found: Survey, topics: Sequence[Topic]) -> list[Move]:
    chosen = {topic.topic_id for topic in topics}
    return [
        reverse_move(found, tp.topic_id, tp.partition)
        for tp, _ in found.image.find_partitions(lambda state: state.is_reassigned)
        if tp.topic_id in chosen
    ]


def reverse_move(found: Survey, topic_id: bytes, number: int) -> Move:
    """Returns the move that cancels a partition's reassignment in progress: back to its original replicas."""
    topic = found.image.topics[topic_id]
    state = topic.partitions[number]
    return Move(
        tp=found.resolve(TopicPartition(topic.name, number)),
        topic=topic.name,
        before=target_replicas(state),
        after=origin_of(state),
    )


def origin_of(state: PartitionState) -> tuple[int, ...]:
    """Returns the replicas that a partition had before the reassignment that is in progress."""
    return tuple(node for node in state.replicas if node not in state.adding)


async def cancel_moves(found: Survey, moves: Sequence[Move], options: PlanOptions) -> None:
    if options.as_json or moves:
        await show(found, moves, options)
    if not moves:
        options.echo("No reassignments in progress.")
    elif not options.execute:
        options.echo("Nothing was changed; run with --execute.")
    else:
        raise_refused(await found.admin.reassign({name_of(move): None for move in moves}))
        options.echo(f"Cancelled {plural(len(moves), 'move')}.")


async def _lift_throttle(client: KafkaClient, options: PlanOptions) -> None:
    count = await unthrottle(client, ClusterAdmin(client))
    if options.as_json:
        echo_json({"topics": count})
    options.echo(f"Removed the throttle of {plural(count, 'topic')} and of all brokers.")
