"""Deletion of named resources: confirmation prompt, one result per name, and one error for all failures."""

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence

import click

from penstock.cli.common import echo_json, run_client
from penstock.cli.contexts import CONTEXT_VARIABLE
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError

DeletionResult = tuple[str, str | None]
"""A pair: the name of a resource, and the reason why it could not be deleted (None if it was deleted)."""


def confirm(question: str, yes: bool, *, verb: str = "delete", participle: str = "deleted") -> None:
    """Asks the user, unless `yes`. Raises UsageError if there is no terminal, ClickException if the user declines."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"no terminal to ask for confirmation: give --yes to {verb} without asking")
    context = os.environ.get(CONTEXT_VARIABLE)
    if not click.confirm(f"In context {context}: {question}" if context else question, err=True):
        raise click.ClickException(f"nothing was {participle}")


def delete_each(
    kind: str,
    names: Sequence[str],
    delete: Callable[[KafkaClient, str], Awaitable[None]],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Deletes the named resources, prints each result, and finally raises ClickException if any deletion failed."""

    async def work(client: KafkaClient) -> list[DeletionResult]:
        results: list[DeletionResult] = []
        for name in names:
            try:
                await delete(client, name)
            except ServerError as error:
                results.append((name, str(error)))
            else:
                results.append((name, None))
        return results

    echo_deleted(kind, run_client(bootstrap, work), as_json)


def echo_deleted(kind: str, results: Iterable[DeletionResult], as_json: bool) -> None:
    """Prints which resources were deleted. Raises ClickException if a resource could not be deleted."""
    failures = []
    for name, failure in results:
        if failure is not None:
            failures.append(failure)
        if as_json:
            echo_json({kind: name, "deleted": failure is None, "error": failure})
        elif failure is None:
            click.echo(f"deleted {kind} {name}")
    if failures:
        raise click.ClickException("; ".join(failures))
