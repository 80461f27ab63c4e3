"""`penstock cluster rebalance`: every broker gets its share, of replicas or only of leaders."""

from random import Random

import click

from penstock.cli.cluster.moves import Terms, carry_out, move_options, name_of, raise_refused
from penstock.cli.cluster.survey import Survey, survey
from penstock.cli.common import bootstrap_option, echo_json, echo_table, json_option, plural, run
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.cluster.rebalance_plans import plan_leaders, plan_rebalance
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition


@click.command()
@click.option("--leaders", is_flag=True, help="Move no replicas: only let the preferred ones lead again.")
@move_options
@bootstrap_option
@json_option
def rebalance(
    leaders: bool, execute: bool, no_wait: bool, throttle: int | None, bootstrap: str, as_json: bool
) -> None:
    """Spread replicas and leaders over the brokers that are there now. Shows the plan; --execute carries it out.

    What lies well is left alone: a broker that was added gets its share from the others, and nothing else moves. No
    two replicas of a partition share a rack, or a machine, while another has none.

    \b
    Examples:
      penstock cluster rebalance
      penstock cluster rebalance --execute --throttle 50000000
      penstock cluster rebalance --leaders --execute
    """
    if leaders and (no_wait or throttle is not None):
        raise click.UsageError("--leaders copies nothing: --throttle and --no-wait have no meaning with it")
    terms = Terms(execute=execute, wait=not no_wait, throttle=throttle, as_json=as_json)

    async def work() -> None:
        async with KafkaClient(bootstrap, rng=Random()) as client:
            found = await survey(client)
            if leaders:
                await _rebalance_leaders(found, terms)
                return
            moves = plan_rebalance(found.image)
            if await carry_out(client, found, moves, terms):
                await _elect(found, [name_of(move) for move in moves])

    run(work())


async def _rebalance_leaders(found: Survey, terms: Terms) -> None:
    plan = plan_leaders(found.image)
    if terms.as_json:
        for place, state in plan:
            echo_json({"partition": str(found.name(place)), "leader": state.leader, "preferred": state.replicas[0]})
    elif plan:
        rows = [(found.name(place), state.leader, state.replicas[0]) for place, state in plan]
        echo_table(["PARTITION", "#LEADER NOW", "#THEN"], rows)
    if not plan:
        terms.say("Nothing to do: every partition is led by its preferred leader, or that one cannot lead.")
    elif not terms.execute:
        terms.say("Nothing was done; give --execute to do it.")
    else:
        await _elect(found, [found.name(place) for place, _ in plan])
        terms.say(f"{plural(len(plan), 'partition')} led by the preferred leader again.")


async def _elect(found: Survey, names: list[TopicPartition]) -> None:
    """Let preferred leaders lead. That one leads already is as good."""
    results = await found.admin.elect_leaders(names) if names else {}
    failures: dict[TopicPartition, ServerError] = {
        name: error
        for name, error in results.items()
        if error is not None and error.code != ErrorCode.ELECTION_NOT_NEEDED
    }
    raise_refused(failures)
