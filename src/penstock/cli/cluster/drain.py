"""`penstock cluster drain`: moves all replicas off a broker so that it can be decommissioned."""

import click

from penstock.cli.cluster.moves import PlanOptions, move_options, run_plan
from penstock.cli.cluster.reassign import cancel_moves, reverse_move
from penstock.cli.cluster.survey import Survey, survey
from penstock.cli.common import cluster_options, run_client
from penstock.client.cluster import KafkaClient
from penstock.client.configs import ConfigChange, Resource
from penstock.client.errors import refusal
from penstock.cluster.rebalance_plans import plan_drain
from penstock.cluster.settings import CORDONED
from penstock.foundation.codes import ErrorCode


@click.command()
@click.argument("node_id", metavar="ID", type=click.IntRange(0))
@click.option("--cancel", is_flag=True, help="Cancel: keep the remaining replicas, and allow new ones.")
@move_options
@cluster_options
def drain(
    node_id: int, cancel: bool, execute: bool, no_wait: bool, throttle: int | None, bootstrap: str, as_json: bool
) -> None:
    """Move every replica off a broker. Shows the plan; --execute runs it.

    The broker gets no new replicas (its setting cordoned.log.dirs) until --cancel. A dead broker can be drained, too:
    its replicas are copied from the others.

    \b
    Examples:
      penstock cluster drain 2
      penstock cluster drain 2 --execute --throttle 50000000
      penstock cluster drain 2 --cancel --execute
    """
    options = PlanOptions(execute=execute, wait=not no_wait, throttle=throttle, as_json=as_json)

    async def work(client: KafkaClient) -> None:
        found = await survey(client)
        if node_id not in found.node_ids:
            raise refusal(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {node_id}",
                f"there is no broker {node_id}, and no replica on it; `penstock cluster brokers` lists brokers",
            )
        if cancel:
            await _cordon(found, node_id, None if execute else "")
            moves = [
                reverse_move(found, tp.topic_id, tp.partition)
                for tp, _ in found.image.find_partitions(lambda state: node_id in state.removing)
            ]
            await cancel_moves(found, moves, options)
            return
        moves = plan_drain(found.image, node_id)
        await _cordon(found, node_id, "*" if execute else "")
        if await run_plan(client, found, moves, options):
            options.echo(f"Broker {node_id} has no replicas left; it can be decommissioned.")

    run_client(bootstrap, work)


async def _cordon(found: Survey, node_id: int, value: str | None) -> None:
    """Sets a broker's cordoned.log.dirs to `value`: `*` stops new replicas, None removes the setting. Does nothing
    if `value` is "" or the broker is not registered."""
    if value != "" and node_id in found.image.brokers:
        await found.admin.alter_configs(
            [ConfigChange(kind=Resource.BROKER, name=str(node_id), values={CORDONED: value})]
        )
