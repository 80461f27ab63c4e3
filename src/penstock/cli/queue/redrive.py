"""`penstock queue redrive`: dead letters go back to where they came from."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from penstock.cli.common import echo_json, json_option, plural
from penstock.cli.queue.access import Access, access_options, ask
from penstock.client.queue_attributes import arn_of
from penstock.client.sqs import SqsClient, SqsRefused

POLL_S: Final = 0.1
_RUNNING: Final = {"RUNNING", "CANCELLING"}
_COUNTS: Final = ("ApproximateNumberOfMessagesMoved", "ApproximateNumberOfMessagesToMove")


@click.command()
@click.argument("name")
@click.option("--to", "to", metavar="QUEUE", help="Where to, if not to where each message came from.")
@click.option("--per-second", type=click.IntRange(1, 500), help="How many a second.  [as fast as it goes]")
@click.option("--no-wait", is_flag=True, help="Do not wait for the end.")
@access_options
@json_option
def redrive(name: str, to: str | None, per_second: int | None, no_wait: bool, access: Access, as_json: bool) -> None:
    """Move the messages of a dead-letter queue back to where they came from, or to another queue.

    Each is moved exactly once. Ctrl-C cancels: what has not been moved stays where it is.

    \b
    Examples:
      penstock queue redrive jobs-dead
      penstock queue redrive jobs-dead --to jobs-retry --per-second 50
    """
    params: dict[str, Any] = {"SourceArn": arn_of(name)}
    if to is not None:
        params["DestinationArn"] = arn_of(to)
    if per_second is not None:
        params["MaxNumberOfMessagesPerSecond"] = per_second

    async def work(sqs: SqsClient) -> dict[str, Any]:
        try:
            handle = (await sqs.call("StartMessageMoveTask", params))["TaskHandle"]
        except SqsRefused as error:
            raise _advised(error, name, to) from error
        try:
            with _progress(not as_json) as advance:
                while True:
                    task = await _latest(sqs, name)
                    moved, total = (int(task.get(each, 0)) for each in _COUNTS)
                    advance(moved, total)
                    if no_wait or task["Status"] not in _RUNNING:
                        return task
                    await asyncio.sleep(POLL_S)
        except asyncio.CancelledError:
            with contextlib.suppress(SqsRefused):  # it has just ended by itself
                await sqs.call("CancelMessageMoveTask", {"TaskHandle": handle})
            raise

    task = ask(access, work, name)
    status, (moved, total) = task["Status"], (int(task.get(each, 0)) for each in _COUNTS)
    if as_json:
        echo_json({"queue": name, "to": to, "status": status, "moved": moved})
    elif status in _RUNNING:
        click.echo(f"moving about {plural(total, 'message')} out of queue {name}")
    else:
        where = f"to queue {to}" if to else f"back to where {'it' if moved == 1 else 'they'} came from"
        click.echo(f"moved {plural(moved, 'message')} of queue {name} {where}")
    if status == "FAILED":
        raise click.ClickException(
            f"the move stopped after {plural(moved, 'message')}: {task.get('FailureReason', 'no reason was told')}; "
            "set that right, and run it again"
        )


def _advised(error: SqsRefused, name: str, to: str | None) -> Exception:
    if error.reason == "ResourceNotFoundException":
        which = f"{name!r}" + (f" or {to!r}" if to else "")
        return click.ClickException(f"there is no queue {which}; `penstock queue list` shows what there is")
    if "Dead Letter Queue" in error.message:
        return click.ClickException(
            "no queue has its dead letters here; make one with `penstock queue create QUEUE --dead-letter "
            f"{name}` before messages can be moved back"
        )
    return error


async def _latest(sqs: SqsClient, name: str) -> dict[str, Any]:
    told = await sqs.call("ListMessageMoveTasks", {"SourceArn": arn_of(name), "MaxResults": 1})
    # Another broker may be asked than the one that began it, and hear of it in a moment.
    latest: dict[str, Any] = told["Results"][0] if told.get("Results") else {"Status": "RUNNING"}
    return latest


@contextlib.contextmanager
def _progress(is_wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, where that is a terminal."""
    if not is_wanted or not sys.stderr.isatty():
        yield lambda moved, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("moving"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("moving", total=None)
        yield lambda moved, total: progress.update(task, completed=moved, total=max(total, moved))
