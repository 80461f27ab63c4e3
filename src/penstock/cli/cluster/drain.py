"""`penstock cluster drain`: a broker gives away all that it has, so that it can be taken away."""

from random import Random

import click

from penstock.cli.cluster.moves import Terms, carry_out, move_options
from penstock.cli.cluster.reassign import backwards, cancel_moves
from penstock.cli.cluster.survey import Survey, survey
from penstock.cli.common import bootstrap_option, json_option, run
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ConfigChange, Resource
from penstock.client.errors import refusal
from penstock.cluster.rebalance_plans import plan_drain
from penstock.cluster.settings import CORDONED
from penstock.foundation.codes import ErrorCode


@click.command()
@click.argument("node_id", metavar="ID", type=click.IntRange(0))
@click.option("--cancel", is_flag=True, help="Let the broker keep what it still has, and get replicas again.")
@move_options
@bootstrap_option
@json_option
def drain(
    node_id: int, cancel: bool, execute: bool, no_wait: bool, throttle: int | None, bootstrap: str, as_json: bool
) -> None:
    """Move every replica off a broker. Shows the plan; --execute carries it out.

    From then on the broker gets no new replicas (its setting cordoned.log.dirs), until --cancel. One that is lost
    can be drained too: its replicas are copied from the others.

    \b
    Examples:
      penstock cluster drain 2
      penstock cluster drain 2 --execute --throttle 50000000
      penstock cluster drain 2 --cancel --execute
    """
    terms = Terms(execute=execute, wait=not no_wait, throttle=throttle, as_json=as_json)

    async def work() -> None:
        async with KafkaClient(bootstrap, rng=Random()) as client:
            found = await survey(client)
            if node_id not in found.node_ids:
                raise refusal(
                    ErrorCode.BROKER_NOT_AVAILABLE,
                    f"broker {node_id}",
                    f"there is no broker {node_id}, nor any replica of it; `penstock cluster brokers` shows who is",
                )
            if cancel:
                await _cordon(found, node_id, None if execute else "")
                moves = [
                    backwards(found, place.topic_id, place.number)
                    for place, _ in found.image.placed(lambda state: node_id in state.removing)
                ]
                await cancel_moves(found, moves, terms)
                return
            moves = plan_drain(found.image, node_id)
            await _cordon(found, node_id, "*" if execute else "")
            if await carry_out(client, found, moves, terms):
                terms.say(f"Broker {node_id} holds nothing now; it can be stopped for good.")

    run(work())


async def _cordon(found: Survey, node_id: int, value: str | None) -> None:
    """Keep new replicas away from a broker (`*`), or let it have some again (None), if it is there."""
    if value != "" and node_id in found.image.brokers:
        await found.admin.alter_configs(
            [ConfigChange(kind=Resource.BROKER, name=str(node_id), values={CORDONED: value})]
        )
