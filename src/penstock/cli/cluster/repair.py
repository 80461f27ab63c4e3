"""`penstock cluster repair-internal-topics`: checks and repairs __consumer_offsets and __transaction_state."""

import click

from penstock.cli.cluster.internal_repair import Repair
from penstock.cli.cluster.internal_topics import Diagnosis, diagnose
from penstock.cli.cluster.moves import PlanOptions, run_plan
from penstock.cli.cluster.survey import survey
from penstock.cli.common import cluster_options, echo_json, echo_table, plural, run_client
from penstock.cli.deletion import confirm
from penstock.client.cluster import KafkaClient
from penstock.cluster.rebalance_plans import plan_replication

WAIT_S = 60


@click.command("repair-internal-topics")
@click.option("--check", is_flag=True, help="Only check; exit with 1 if a repair is needed.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(1),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for open transactions to end.",
)
@cluster_options
@click.pass_context
def repair_internal_topics(
    ctx: click.Context, check: bool, yes: bool, wait_s: int, bootstrap: str, as_json: bool
) -> None:
    """Check and repair internal topics. These are __consumer_offsets and __transaction_state.

    Settings and replicas are repaired online. If partitions are missing, the coordinators of the topic pause for some
    seconds (clients retry automatically): partitions are added, all state is copied to the partitions it hashes to
    and read back, and only then deleted from the old ones. If interrupted, run it again.

    Shows the problems and asks for confirmation; without a terminal, --yes is required.

    \b
    Examples:
      penstock cluster repair-internal-topics
      penstock cluster repair-internal-topics --yes
      penstock cluster repair-internal-topics --check --json
    """

    async def work(client: KafkaClient) -> bool:
        """Shows the problems, and repairs them unless --check is given. Returns False if problems remain."""
        found = [topic for topic in await diagnose(client) if list(topic.steps())]
        _show(found, as_json)
        if check or not found:
            return not found
        confirm("Repair?", yes, verb="repair", participle="repaired")
        for topic in found:
            await _repair(client, topic, wait_s, as_json)
        if not as_json:
            click.echo(f"Repaired {plural(len(found), 'topic')}.")
        return all(fault.is_repairable for topic in found for fault in topic.faults)

    if not run_client(bootstrap, work):
        ctx.exit(1)


def _show(found: list[Diagnosis], as_json: bool) -> None:
    if as_json:
        for topic in found:
            for step in topic.steps():
                echo_json({"topic": topic.name, **step._asdict()})
        return
    if not found:
        click.echo("Nothing to repair.")
        return
    rows = [(topic.name, step.problem, step.repair) for topic in found for step in topic.steps()]
    echo_table(["TOPIC", "PROBLEM", "REPAIR"], rows)


async def _repair(client: KafkaClient, topic: Diagnosis, wait_s: int, as_json: bool) -> None:
    def report(name: str, done: str, numbers: dict[str, object]) -> None:
        if as_json:
            echo_json({"topic": name, "done": done, **numbers})
            return
        details = ", ".join(f"{key} {_shown(value)}" for key, value in numbers.items())
        click.echo(f"{name}: {done}{f' ({details})' if details else ''}")

    repair = Repair(client, topic, report, wait_s)
    await repair.repair_settings()
    await repair.repair_partitions()
    if topic.replicas < topic.replicas_wanted:
        surveyed = await survey(client)
        moves = plan_replication(surveyed.image, [surveyed.topic(topic.name)], topic.replicas_wanted)
        options = PlanOptions(execute=True, wait=True, throttle=None, as_json=as_json)
        await run_plan(client, surveyed, moves, options)
    report(topic.name, "repaired", {})


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
