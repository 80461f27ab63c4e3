"""`penstock cluster rebalance`: spreads replicas, or only leaders, evenly over the brokers."""

import click

from penstock.cli.cluster.moves import PlanOptions, move_options, name_of, raise_refused, run_plan
from penstock.cli.cluster.survey import Survey, survey
from penstock.cli.common import cluster_options, echo_json, echo_table, plural, run_client
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.cluster.rebalance_plans import plan_leaders, plan_rebalance
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition


@click.command()
@click.option("--leaders", is_flag=True, help="Move no replicas; only elect preferred leaders.")
@move_options
@cluster_options
def rebalance(
    leaders: bool, execute: bool, no_wait: bool, throttle: int | None, bootstrap: str, as_json: bool
) -> None:
    """Spread replicas and leaders over the brokers. Shows the plan; --execute runs it.

    Moves as little as possible: a new broker gets its share from the others, and nothing else moves. The replicas of
    a partition are on different racks and machines as far as there are enough.

    \b
    Examples:
      penstock cluster rebalance
      penstock cluster rebalance --execute --throttle 50000000
      penstock cluster rebalance --leaders --execute
    """
    if leaders and (no_wait or throttle is not None):
        raise click.UsageError("--leaders copies no data: it cannot be used with --throttle or --no-wait")
    options = PlanOptions(execute=execute, wait=not no_wait, throttle=throttle, as_json=as_json)

    async def work(client: KafkaClient) -> None:
        found = await survey(client)
        if leaders:
            await _rebalance_leaders(found, options)
            return
        moves = plan_rebalance(found.image)
        if await run_plan(client, found, moves, options):
            await _elect(found, [name_of(move) for move in moves])

    run_client(bootstrap, work)


async def _rebalance_leaders(found: Survey, options: PlanOptions) -> None:
    plan = plan_leaders(found.image)
    if options.as_json:
        for tp, state in plan:
            echo_json({"partition": str(found.name(tp)), "leader": state.leader, "preferred": state.replicas[0]})
    elif plan:
        rows = [(found.name(tp), state.leader, state.replicas[0]) for tp, state in plan]
        echo_table(["PARTITION", "#LEADER NOW", "#THEN"], rows)
    if not plan:
        options.echo("Nothing to do: every partition has its preferred leader, or that replica is not eligible.")
    elif not options.execute:
        options.echo("Nothing was changed; run with --execute.")
    else:
        await _elect(found, [found.name(tp) for tp, _ in plan])
        options.echo(f"Elected the preferred leader of {plural(len(plan), 'partition')}.")


async def _elect(found: Survey, names: list[TopicPartition]) -> None:
    """Elects the preferred leaders of the partitions; raises if an election fails, unless it was not needed."""
    results = await found.admin.elect_leaders(names) if names else {}
    failures: dict[TopicPartition, ServerError] = {
        name: error
        for name, error in results.items()
        if error is not None and error.code != ErrorCode.ELECTION_NOT_NEEDED
    }
    raise_refused(failures)
