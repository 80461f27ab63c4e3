"""`penstock pipeline`: lists, describes, validates and runs Spark pipelines; deletes a Spark query's broker state."""

import sys
import tempfile
import textwrap
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import (
    Pairs,
    bootstrap_option,
    echo_json,
    echo_list,
    echo_table,
    json_option,
    pairs_option,
    run_client,
)
from penstock.cli.pipeline.screen import LineDisplay, LiveDisplay, ProgressDisplay
from penstock.cli.pipeline.server import server
from penstock.cli.pipeline.shell import shell
from penstock.client.commit_set import forget_query
from penstock.spark.pipelines.catalogue import NAMES, LoadedPipeline, check_clusters, check_statements, find, load
from penstock.spark.pipelines.document import PipelineInvalid
from penstock.spark.pipelines.options import options_of

if TYPE_CHECKING:
    from penstock.spark.pipelines.pipeline import Report

INVALID = 2


@click.group()
def pipeline() -> None:
    """Run data pipelines on Spark. There are built-in ones, and your own as YAML files.

    \b
    Examples:
      penstock pipeline list
      penstock pipeline describe archive
      penstock pipeline run archive -o topics=orders -o path=lake/orders --once
      penstock pipeline run totals.yaml --continuous
    """


pipeline.add_command(server)
pipeline.add_command(shell)


def _settings(command: Any) -> Any:
    command = pairs_option(
        "-o",
        "--option",
        "settings",
        help="Set a pipeline option; dots select nested ones (sink.topic=totals). Repeatable.",
    )(command)
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT[,…]",
        envvar="PENSTOCK_BOOTSTRAP",
        show_envvar=True,
        help="Addresses of brokers, unless the file sets them.",
    )(command)


@pipeline.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """List the built-in pipelines.

    \b
    Examples:
      penstock pipeline list
    """
    found = [find(name) for name in NAMES]
    objects = [{"pipeline": each.name, "summary": each.summary, "streams": each.streams} for each in found]
    echo_list(objects, ["PIPELINE", "WHAT IT DOES"], as_json=as_json)


@pipeline.command()
@click.argument("name", metavar="NAME|FILE.yaml")
@json_option
def describe(name: str, as_json: bool) -> None:
    """Show what a pipeline does, and all its options.

    \b
    Examples:
      penstock pipeline describe audit
    """
    with _print_problems():
        found = load(name).pipeline if name.endswith((".yaml", ".yml")) else find(name)
    rows = list(_option_rows(found.options))
    if as_json:
        names = ("option", "value", "default", "about")
        options = [dict(zip(names, row, strict=True)) for row in rows]
        echo_json({"pipeline": found.name, "summary": found.summary, "streams": found.streams, "options": options})
        return
    click.secho(f"{found.name}: {found.summary}", bold=True)
    click.echo(f"\n{found.about}\n")
    echo_table(["OPTION", "VALUE", "DEFAULT", "ABOUT"], rows)
    click.echo(f"\nExample:\n{textwrap.indent(found.example, '  ')}", nl=False)


def _option_rows(kind: type[Any], prefix: str = "") -> Any:
    from dataclasses import MISSING

    for each in options_of(kind):
        required = each.default is MISSING and each.default_factory is MISSING
        default = "(required)" if required else _default(each.default)
        yield f"{prefix}{each.name}", each.metadata["metavar"], default, each.metadata["doc"]
        below = getattr(each.metadata["reader"], "kind", None)
        if below is not None:
            named = "NAME." if each.metadata["metavar"].startswith("NAME") else ""
            yield from _option_rows(below, f"{prefix}{each.name}.{named}")


def _default(value: object) -> str | None:
    from dataclasses import MISSING

    if value is MISSING or value is None or value in ("", ()):
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


@pipeline.command()
@click.argument("target", metavar="FILE.yaml|NAME")
@_settings
@click.option("--offline", is_flag=True, help="Do not connect to brokers to check the topics.")
@json_option
def validate(target: str, settings: Pairs, bootstrap: str | None, offline: bool, as_json: bool) -> None:
    """Check a pipeline without running it. Checks keys, types, SQL, columns, brokers and topics, without Spark.

    \b
    Examples:
      penstock pipeline validate totals.yaml
      penstock pipeline validate totals.yaml --offline --json
    """
    with _print_problems(as_json):
        loaded = load(target, settings, bootstrap)
        warnings = list(map(str, check_statements(loaded)))
        if not offline:
            check_clusters(loaded)
    if as_json:
        found = {"ok": True, "name": loaded.options.name, "pipeline": loaded.pipeline.name}
        echo_json({**found, "doubts": warnings} if warnings else found)
    else:
        for warning in warnings:
            click.echo(warning, err=True)
        click.echo(f"{target} is valid: pipeline {loaded.pipeline.name}, name {loaded.options.name}")


@pipeline.command()
@click.argument("target", metavar="FILE.yaml|NAME")
@_settings
@click.option(
    "--master",
    metavar="URL",
    help="Spark master, or a Spark Connect server (sc://HOST). Default: the file's `remote`, SPARK_REMOTE, local[*].",
)
@click.option("--once/--continuous", default=None, help="Process the data present now and end, or keep running.")
@click.option("--trim-archived", is_flag=True, help="archive: delete archived messages from the topics.")
@click.option("--where", metavar="SQL", help="Only messages that match this condition; same as -o where=SQL.")
@click.option("--dry-run", is_flag=True, help="redrive: only show what would be moved.")
@click.option("--ui", is_flag=True, help="Serve the Spark web UI while it runs.")
@json_option
def run(
    target: str,
    settings: Pairs,
    bootstrap: str | None,
    master: str | None,
    once: bool | None,
    trim_archived: bool,
    where: str | None,
    dry_run: bool,
    ui: bool,
    as_json: bool,
) -> None:
    """Run a pipeline: a YAML file, or a built-in one by name. Its options are checked before Spark starts.

    A streaming pipeline runs until Ctrl-C, unless --once is given. Exit code 1: it failed, or an audit found a FAIL.

    \b
    Examples:
      penstock pipeline run archive -o topics=orders -o path=lake/orders --once
      penstock pipeline run totals.yaml --master spark://host:7077
      penstock pipeline run audit -o expected.topic=orders -o actual.path=lake/orders --json
      penstock pipeline run redrive -o queue=jobs-dead --where "receive_count < 10" --dry-run
    """
    if trim_archived:
        settings = [*settings, ("trim_archived", "true")]
    if where is not None:
        settings = [*settings, ("where", where)]
    if dry_run:
        settings = [*settings, ("dry_run", "true")]
    with _print_problems(as_json):
        loaded = load(target, settings, bootstrap)
        if once is False and not loaded.pipeline.streams:
            raise click.UsageError(f"{loaded.pipeline.name} is a batch pipeline and cannot be run with --continuous")
        check_clusters(loaded)
    report = _run(loaded, master, once if once is not None else not loaded.pipeline.streams, ui, as_json)
    if not report.is_ok:
        raise click.exceptions.Exit(1)


@pipeline.command()
@click.argument("query")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@bootstrap_option
def forget(query: str, yes: bool, bootstrap: str) -> None:
    """Forget a streaming query that will never run again. Aborts its open transactions and deletes its state.

    QUERY is the query's id in Spark (in the file `metadata` of its checkpoint), or its `txnAppId`. If the query runs
    again from its old checkpoint, its last batch may be written a second time.

    \b
    Example:
      penstock pipeline forget 6f7d8d1e-3d8c-4a3f-9a52-0c2f5c6f5a4e
    """
    if not yes:
        click.confirm(f"Forget which batches of query {query} were written?", abort=True)
    run_client(bootstrap, lambda client: forget_query(client, query=query))
    click.echo(f"query {query} is forgotten")


def _run(loaded: LoadedPipeline, master: str | None, once: bool, ui: bool, as_json: bool) -> "Report":
    from penstock.spark.pipelines.runner import run_loaded

    log = Path(tempfile.mkdtemp(prefix="penstock-spark-")) / "spark.log"
    display: ProgressDisplay = (
        LiveDisplay(loaded.options.name) if sys.stdout.isatty() and not as_json else LineDisplay(as_json)
    )
    with display:
        report = run_loaded(
            loaded, master=master, once=once, ui=ui, log=log, on_batch=display.batch, on_step=display.step
        )
    display.report(report)
    return report


class _print_problems(AbstractContextManager[None]):  # noqa: N801 - used as a statement
    """A context manager that catches PipelineInvalid: prints each problem on its own line and exits with status 2."""

    def __init__(self, as_json: bool = False) -> None:
        self._as_json = as_json

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not isinstance(error, PipelineInvalid):
            return
        for problem in error.problems:
            if self._as_json:
                location = problem.location
                found = {"file": location.file, "line": location.line or None, "column": location.column or None}
                echo_json({"ok": False, **found, "message": problem.message})
            else:
                click.echo(f"Error: {problem}", err=True)
        raise click.exceptions.Exit(INVALID)
