"""`penstock cluster migrate-store`: copies a broker's embedded metadata to ZooKeeper or etcd."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from penstock.cli.common import echo_json, echo_table, json_option, plural, run, store_config_option
from penstock.cluster import keys
from penstock.cluster.identity import lock_folder
from penstock.cluster.store_migration import Migration, MigrationPlan
from penstock.coordination.store import StoreUnavailable
from penstock.coordination.store_security import StoreSecurity
from penstock.coordination.stores import EMBEDDED_FILE, open_embedded, open_store, parse

SESSION_S: Final = 10.0
PROGRESS_KEYS: Final = 5000
"""Minimum number of keys to copy for which a progress bar is shown."""


@click.command("migrate-store")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("penstock-data"),
    help="Data folder of the broker, which must be stopped.  [./penstock-data]",
)
@click.option("--to", "url", required=True, metavar="URL", help="The new store: zookeeper://…, etcd://….")
@store_config_option
@click.option("--execute", is_flag=True, help="Run the migration. Without it, only the plan is shown.")
@json_option
def migrate_store(data_dir: Path, url: str, store_security: StoreSecurity, execute: bool, as_json: bool) -> None:
    """Move a broker's metadata to ZooKeeper or etcd. Then other brokers can join it. Messages stay on the broker.

    The broker must be stopped. Its embedded store is sealed first: from then on the broker starts only with --store.
    Topics, groups, transactions, settings and the cluster id are preserved. If interrupted, run it again. Shows the
    plan; --execute runs it.

    \b
    Examples:
      penstock cluster migrate-store --data-dir /var/lib/penstock --to etcd://etcd-1:2379,etcd-2:2379/penstock
      penstock cluster migrate-store --data-dir /var/lib/penstock --to zookeeper://zk-1:2181/penstock --execute
    """
    parse(url)
    if not (data_dir / EMBEDDED_FILE).is_file():
        raise click.ClickException(f"no embedded store in {data_dir}; give the --data-dir of a broker")
    lock_fd = lock_folder(data_dir)
    try:
        move = run(_migrate(data_dir, url, store_security, execute))
    except StoreUnavailable as error:
        again = "; run it again to continue where it stopped" if execute else ""
        raise click.ClickException(f"{error}{again}") from error
    finally:
        os.close(lock_fd)
    _show(move, data_dir, url, execute, as_json)


async def _migrate(data_dir: Path, url: str, security: StoreSecurity, execute: bool) -> MigrationPlan:
    source = await open_embedded(data_dir, opens_sealed=True)
    try:
        target = await open_store(url, data_dir, SESSION_S, security=security)
        try:
            migration = Migration(source, target, url)
            move = await migration.plan()
            if not execute:
                return move
            with _progress(len(move.missing)) as advance:
                await migration.execute(advance)
            return move
        finally:
            await target.close()
    finally:
        await source.close()


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function to report copied keys; it shows a progress bar if there are many keys and a terminal."""
    if total < PROGRESS_KEYS or not sys.stderr.isatty():
        yield lambda count: None
        return
    with click.progressbar(length=total, label="moving", file=sys.stderr) as bar:
        yield bar.update


def _show(move: MigrationPlan, data_dir: Path, url: str, execute: bool, as_json: bool) -> None:
    facts = {
        "cluster_id": move.cluster_id,
        "from": str(data_dir / EMBEDDED_FILE),
        "to": url,
        "topics": move.count(keys.TOPICS),
        "partitions": move.count(keys.PARTITIONS),
        "keys": len(move.entries),
        "missing": len(move.missing),
    }
    if as_json:
        echo_json(facts | {"executed": execute})
        return
    echo_table(["WHAT", "VALUE"], [(name.replace("_", " "), value) for name, value in facts.items()])
    if move.is_complete:
        click.echo(f"\nalready moved: start the broker with --store {url}")
    elif execute:
        click.echo(f"\nmoved {plural(len(move.missing), 'key')}: start the broker with --store {url}")
    else:
        click.echo(f"\nwould move {plural(len(move.missing), 'key')} (run with --execute)")
