"""`penstock queue redrive`: moves dead-letter messages back to their source queues (StartMessageMoveTask)."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from penstock.cli.common import echo_json, plural
from penstock.cli.queue.access import Access, access_options, run_sqs
from penstock.client.queue_attributes import arn_of
from penstock.client.sqs import SqsClient, SqsError

POLL_S: Final = 0.1
_RUNNING: Final = {"RUNNING", "CANCELLING"}
_COUNTS: Final = ("ApproximateNumberOfMessagesMoved", "ApproximateNumberOfMessagesToMove")


@click.command()
@click.argument("name")
@click.option("--to", "to", metavar="QUEUE", help="Move to this queue instead of the source queues.")
@click.option("--per-second", type=click.IntRange(1, 500), help="Messages per second, at most.  [unlimited]")
@click.option("--no-wait", is_flag=True, help="Start the move and return at once.")
@access_options
def redrive(name: str, to: str | None, per_second: int | None, no_wait: bool, access: Access, as_json: bool) -> None:
    """Move dead-letter messages back to their source queues. --to moves them to another queue.

    Each message is moved exactly once. Ctrl-C cancels: messages not moved yet stay where they are.

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
        except SqsError as error:
            raise _explain_refusal(error, name, to) from error
        try:
            with _progress(not as_json) as advance:
                while True:
                    task = await _latest_task(sqs, name)
                    moved, total = (int(task.get(each, 0)) for each in _COUNTS)
                    advance(moved, total)
                    if no_wait or task["Status"] not in _RUNNING:
                        return task
                    await asyncio.sleep(POLL_S)
        except asyncio.CancelledError:
            with contextlib.suppress(SqsError):  # it has just finished
                await sqs.call("CancelMessageMoveTask", {"TaskHandle": handle})
            raise

    task = run_sqs(access, work, name)
    status, (moved, total) = task["Status"], (int(task.get(each, 0)) for each in _COUNTS)
    if as_json:
        echo_json({"queue": name, "to": to, "status": status, "moved": moved})
    elif status in _RUNNING:
        click.echo(f"moving about {plural(total, 'message')} out of queue {name}")
    else:
        where = f"to queue {to}" if to else "back to their source queues"
        click.echo(f"moved {plural(moved, 'message')} of queue {name} {where}")
    if status == "FAILED":
        raise click.ClickException(
            f"the move stopped after {plural(moved, 'message')}: {task.get('FailureReason', 'no reason was given')}; "
            "fix the cause, and run it again"
        )


def _explain_refusal(error: SqsError, name: str, to: str | None) -> Exception:
    if error.reason == "ResourceNotFoundException":
        which = f"{name!r}" + (f" or {to!r}" if to else "")
        return click.ClickException(f"there is no queue {which}; `penstock queue list` lists them")
    if "Dead Letter Queue" in error.message:
        return click.ClickException(
            f"{name!r} is not the dead-letter queue of any queue; `penstock queue create QUEUE --dead-letter {name}` "
            "makes it one"
        )
    return error


async def _latest_task(sqs: SqsClient, name: str) -> dict[str, Any]:
    response = await sqs.call("ListMessageMoveTasks", {"SourceArn": arn_of(name), "MaxResults": 1})
    # Another broker than the one that started the task may answer, and learn of it a moment later.
    latest: dict[str, Any] = response["Results"][0] if response.get("Results") else {"Status": "RUNNING"}
    return latest


@contextlib.contextmanager
def _progress(is_wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that updates a progress bar on stderr; a no-op unless `is_wanted` and stderr is a TTY."""
    if not is_wanted or not sys.stderr.isatty():
        yield lambda moved, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("moving"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("moving", total=None)
        yield lambda moved, total: progress.update(task, completed=moved, total=max(total, moved))
