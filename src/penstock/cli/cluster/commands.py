"""`penstock cluster status|brokers`: health, partitions and load of a cluster."""

from collections.abc import Iterable, Mapping

import click

from penstock.cli.cluster.drain import drain
from penstock.cli.cluster.migrate_store import migrate_store
from penstock.cli.cluster.reassign import reassign
from penstock.cli.cluster.rebalance import rebalance
from penstock.cli.cluster.repair import repair_internal_topics
from penstock.cli.cluster.survey import Survey, survey_now
from penstock.cli.common import cluster_options, echo_json, echo_list, echo_table, format_bytes, plural, run_client
from penstock.client.cluster import KafkaClient
from penstock.cluster.image import NO_LEADER, PartitionEntry
from penstock.cluster.survey import Health
from penstock.foundation.ids import TopicPartition

Sizes = Mapping[int, Mapping[TopicPartition, int]]


@click.group()
def cluster() -> None:
    """Manage a cluster: its brokers, and the replicas on them.

    \b
    Examples:
      penstock cluster status
      penstock cluster reassign --replication-factor 3 --topic orders
      penstock cluster drain 2 --execute
      penstock cluster rebalance
    """


for command in (reassign, drain, rebalance, migrate_store, repair_internal_topics):
    cluster.add_command(command)


@cluster.command()
@click.option("--check", is_flag=True, help="Exit with 1 unless the cluster is healthy.")
@cluster_options
@click.pass_context
def status(ctx: click.Context, check: bool, bootstrap: str, as_json: bool) -> None:
    """Show the health of brokers and partitions. Also reassignments in progress.

    A cluster is healthy if all partitions have a leader and all replicas in sync, and all brokers answer. Each broker
    is contacted and has 5 s to answer: one that has just died is still registered, perhaps even as the controller.
    Reassignments in progress and leaders that are not preferred are shown, but do not make a cluster unhealthy.

    \b
    Examples:
      penstock cluster status
      penstock cluster status --check && echo healthy
      penstock cluster status --json | jq .partitions.offline
    """

    async def work(client: KafkaClient) -> tuple[Survey, Health, Sizes]:
        found = await survey_now(client)
        health = await found.examine()
        names = [found.name(tp) for tp, _ in health.moving]
        return found, health, await found.admin.sizes(_reachable(found), names) if names else {}

    found, health, sizes = run_client(bootstrap, work)
    if as_json:
        echo_json(_as_json(found, health, sizes))
    else:
        _echo_status(found, health, sizes)
    if check and not _is_healthy(found, health):
        ctx.exit(1)


def _reachable(found: Survey) -> list[int]:
    return [node_id for node_id in found.image.brokers if node_id not in found.unreachable]


def _is_healthy(found: Survey, health: Health) -> bool:
    return health.is_good and not found.unreachable


def _echo_status(found: Survey, health: Health, sizes: Sizes) -> None:
    image = found.image
    states = [state for _, state in image.find_partitions()]
    click.echo(f"cluster {found.cluster_id}: {'healthy' if _is_healthy(found, health) else 'unhealthy'}")
    click.echo(
        f"{plural(len(image.brokers), 'broker')}, {plural(len(image.topics), 'topic')}, "
        f"{plural(len(states), 'partition')}, {plural(sum(len(state.replicas) for state in states), 'replica')}\n"
    )
    echo_table(["#ID", "ADDRESS", "RACK", "STATE"], [_broker_row(found, node) for node in found.node_ids])
    for node_id, reason in found.unreachable.items():
        role = " (controller)" if node_id == found.controller else ""
        click.echo(f"\nbroker {node_id}{role} does not answer: {reason}")
    click.echo()
    echo_table(
        ["PARTITIONS", "#COUNT"],
        [
            ("offline", len(health.offline)),
            ("led by a broker that does not answer", len(found.led_by_unreachable())),
            ("under min.insync.replicas", len(health.under_min_isr)),
            ("under-replicated", len(health.under_replicated)),
            ("moving", len(health.moving)),
            ("not led by their preferred leader", len(health.not_preferred)),
        ],
    )
    problems = _problems(health)
    if problems:
        click.echo()
        echo_table(
            ["PARTITION", "PROBLEM", "#LEADER", "IN SYNC", "REPLICAS"],
            [_problem_row(found, placed, problem) for placed, problem in problems],
        )
    if health.moving:
        click.echo()
        echo_table(
            ["MOVING", "REPLICAS", "ADDING", "REMOVING", "#COPIED"],
            [_moving_row(found, placed, sizes) for placed in health.moving],
        )


def _broker_row(found: Survey, node_id: int) -> tuple[object, ...]:
    broker = found.image.brokers.get(node_id)
    if broker is None:
        return node_id, None, None, found.state_of(node_id)
    return node_id, f"{broker.host}:{broker.port}", broker.rack, found.state_of(node_id)


def _problems(health: Health) -> list[tuple[PartitionEntry, str]]:
    """Returns each unhealthy partition once, with its worst problem."""
    worst: dict[object, tuple[PartitionEntry, str]] = {}
    for problem, placed in (
        ("offline", health.offline),
        ("under min.insync.replicas", health.under_min_isr),
        ("under-replicated", health.under_replicated),
    ):
        for one in placed:
            worst.setdefault(one[0], (one, problem))
    return list(worst.values())


def _problem_row(found: Survey, placed: PartitionEntry, problem: str) -> tuple[object, ...]:
    tp, state = placed
    leader = None if state.leader == NO_LEADER else state.leader
    return found.name(tp), problem, leader, _nodes(state.isr), _nodes(state.replicas)


def _moving_row(found: Survey, placed: PartitionEntry, sizes: Sizes) -> tuple[object, ...]:
    tp, state = placed
    share = found.progress(placed, sizes)
    shown = None if share is None else f"{share:.0%}"
    return found.name(tp), _nodes(state.replicas), _nodes(state.adding), _nodes(state.removing), shown


def _nodes(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes)) or "-"


def _as_json(found: Survey, health: Health, sizes: Sizes) -> dict[str, object]:
    image = found.image
    states = [state for _, state in image.find_partitions()]

    def names(placed: Iterable[PartitionEntry]) -> list[str]:
        return [str(found.name(tp)) for tp, _ in placed]

    return {
        "cluster_id": found.cluster_id,
        "healthy": _is_healthy(found, health),
        "controller": found.controller,
        "unreachable": [{"id": node_id, "reason": reason} for node_id, reason in found.unreachable.items()],
        "brokers": [
            {
                "id": node_id,
                "host": broker.host if broker else None,
                "port": broker.port if broker else None,
                "rack": broker.rack if broker else None,
                "state": found.state_of(node_id),
            }
            for node_id in found.node_ids
            for broker in [image.brokers.get(node_id)]
        ],
        "counts": {
            "topics": len(image.topics),
            "partitions": len(states),
            "replicas": sum(len(state.replicas) for state in states),
        },
        "partitions": {
            "offline": names(health.offline),
            "leader_unreachable": names(found.led_by_unreachable()),
            "under_min_isr": names(health.under_min_isr),
            "under_replicated": names(health.under_replicated),
            "not_preferred": names(health.not_preferred),
        },
        "moving": [
            {
                "partition": str(found.name(placed[0])),
                "replicas": placed[1].replicas,
                "adding": placed[1].adding,
                "removing": placed[1].removing,
                "copied": found.progress(placed, sizes),
            }
            for placed in health.moving
        ],
    }


@cluster.command()
@cluster_options
def brokers(bootstrap: str, as_json: bool) -> None:
    """List brokers with their replicas and size.

    \b
    Examples:
      penstock cluster brokers
      penstock cluster brokers --json | jq .size_bytes
    """

    async def work(client: KafkaClient) -> tuple[Survey, Sizes]:
        found = await survey_now(client)
        return found, await found.admin.sizes(_reachable(found))

    found, sizes = run_client(bootstrap, work)
    objects = [_load(found, sizes, node_id) for node_id in found.node_ids]
    columns = ["#ID", "HOST", "RACK", "STATE", "#REPLICAS", "#LEADERS", "#SIZE", "CONTROLLER"]
    if not as_json:
        for each in objects:
            each["size_bytes"] = format_bytes(size) if isinstance(size := each["size_bytes"], int) else None
    echo_list(objects, columns, as_json=as_json)


def _load(found: Survey, sizes: Sizes, node_id: int) -> dict[str, object]:
    broker = found.image.brokers.get(node_id)
    return {
        "id": node_id,
        "address": f"{broker.host}:{broker.port}" if broker else None,
        "rack": broker.rack if broker else None,
        "state": found.state_of(node_id),
        "replicas": sum(1 for _ in found.image.held_by(node_id)),
        "leaders": sum(1 for _ in found.image.led_by(node_id)),
        "size_bytes": sum(sizes[node_id].values()) if node_id in sizes else None,
        "controller": node_id == found.controller,
    }
