"""Deletion of named resources: confirmation prompt, one result per name, and one error for all failures."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import click

from penstock.cli.common import echo_json, run
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError


def confirm(question: str, yes: bool) -> None:
    """Asks for confirmation unless `yes`. Raises UsageError if there is no terminal, ClickException if declined."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask for confirmation: give --yes to delete without asking")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was deleted")


def delete_each(
    kind: str,
    names: Sequence[str],
    delete: Callable[[KafkaClient, str], Awaitable[None]],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Deletes the named resources, prints each result, and finally raises ClickException if any deletion failed."""

    async def work() -> list[tuple[str, ServerError | None]]:
        results: list[tuple[str, ServerError | None]] = []
        async with KafkaClient(bootstrap, rng=Random()) as client:
            for name in names:
                failure = None
                try:
                    await delete(client, name)
                except ServerError as error:
                    failure = error
                results.append((name, failure))
        return results

    failures = []
    for name, failure in run(work()):
        if failure is not None:
            failures.append(str(failure))
        if as_json:
            echo_json({kind: name, "deleted": failure is None, "error": str(failure) if failure else None})
        elif failure is None:
            click.echo(f"deleted {kind} {name}")
    if failures:
        raise click.ClickException("; ".join(failures))
