"""`penstock schema import`: registers the schemas of an export with the same ids, in mode IMPORT."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from penstock.cli.common import echo_result, plural
from penstock.cli.deletion import confirm
from penstock.cli.schema.access import RegistryAccess, optional, registry_options, run_registry
from penstock.cli.schema.archive import Archive, ArchivedVersion, InvalidArchive, ScopeSettings, read_archive
from penstock.cli.schema.emptiness import subjects_in
from penstock.cli.schema.import_plan import context_prefix, move_to, registration_order
from penstock.cli.schema.progress import progress_bar
from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_errors import LEVEL_NOT_CONFIGURED, VERSION_SOFT_DELETED
from penstock.client.schema_registry_models import context_of
from penstock.foundation.errors import PenstockError

IMPORT: Final = "IMPORT"
READWRITE: Final = "READWRITE"


@dataclass(slots=True)
class _Target:
    """The state of the contexts before the import."""

    soft_deleted: int = 0
    registered: dict[tuple[str, int], int] = field(default_factory=dict)
    """Ids of versions that an earlier import has registered, by subject and version."""


@click.command(name="import")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--context", metavar="NAME", help="Import into this context.  [those of the export]")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@registry_options
def import_(folder: Path, context: str | None, yes: bool, access: RegistryAccess, as_json: bool) -> None:
    """Register all schemas that `penstock schema export` wrote into a folder, with the same ids and versions.

    The registry, or the context, must be empty. It is in mode IMPORT meanwhile, so clients cannot register schemas.
    An import that was interrupted continues when it is run again.

    \b
    Examples:
      penstock schema import schemas
      penstock schema import schemas --context staging
    """
    archive = read_archive(folder)
    if context is not None:
        try:
            archive = move_to(archive, context_prefix(context))
        except ValueError as error:
            raise click.UsageError(f"--context: {error}") from error
    order = registration_order(archive)
    scopes = sorted({context_of(each.subject) for each in archive.subjects} or archive.contexts.keys())
    target = run_registry(access, lambda client: _examine(client, scopes))
    if target.soft_deleted:
        count = plural(target.soft_deleted, "soft-deleted subject")
        confirm(
            f"Importing removes {count} of the registry permanently: data written with their schemas cannot be read. "
            "Continue?",
            yes,
            verb="import",
            participle="imported",
        )

    async def work(client: SchemaRegistryClient) -> None:
        done = 0
        for scope in scopes:
            if await client.mode(scope, inherited=True) != IMPORT:
                await client.set_mode(IMPORT, scope)
        try:
            with progress_bar("versions", len(order), is_wanted=not as_json) as advance:
                for each in order:
                    await _register(client, each, target)
                    done += 1
                    advance()
            await _soft_delete(client, order)
            await _apply_settings(client, archive, scopes)
        except PenstockError as error:
            raise click.ClickException(f"{error}; {_unfinished(done, len(order), scopes)}") from error
        except asyncio.CancelledError:
            click.echo(_unfinished(done, len(order), scopes), err=True)
            raise

    run_registry(access, work)
    facts = {"folder": str(folder), "subjects": len(archive.subjects), "versions": len(order)}
    text = f"imported {plural(len(archive.subjects), 'subject')} with {plural(len(order), 'version')}"
    echo_result(facts, text, as_json=as_json)


async def _examine(client: SchemaRegistryClient, scopes: Sequence[str]) -> _Target:
    """Raises ClickException if a context has subjects, unless an earlier import into it was interrupted."""
    found = _Target()
    for scope in scopes:
        subjects = await subjects_in(client, scope)
        if await client.mode(scope, inherited=True) == IMPORT:
            known = await client.schemas(scope, deleted=True)
            found.registered |= {(each.subject, each.version): each.id for each in known}
        elif subjects.visible:
            where = f"context {scope.strip(':')}" if scope else "the registry"
            raise click.ClickException(
                f"{where} has {plural(len(subjects.visible), 'subject')}, such as {subjects.visible[0]}; import into "
                "an empty registry, or into an empty context with --context NAME"
            )
        else:
            found.soft_deleted += len(subjects.soft_deleted)
    return found


def _unfinished(done: int, total: int, scopes: Sequence[str]) -> str:
    """Says how far an import came, and what to do."""
    commands = " and ".join(f"`penstock schema mode {' '.join(filter(None, (each, READWRITE)))}`" for each in scopes)
    return (
        f"{done} of {plural(total, 'version')} are imported, and the registry is still in mode {IMPORT}: run the "
        f"command again to continue, or end it with {commands}"
    )


async def _register(client: SchemaRegistryClient, each: ArchivedVersion, target: _Target) -> None:
    known = target.registered.get((each.subject, each.version))
    if known is None:
        await client.register(each.subject, each.schema(), version=each.version, schema_id=each.id)
    elif known != each.id:
        raise InvalidArchive(f"{each.name} has id {known} in the registry, and {each.id} in the export")


async def _soft_delete(client: SchemaRegistryClient, order: Sequence[ArchivedVersion]) -> None:
    """Soft-deletes what was soft-deleted when it was exported: schemas before those they refer to."""
    for each in reversed(order):
        if each.is_deleted:
            await optional(client.delete_version(each.subject, each.version), VERSION_SOFT_DELETED)


async def _apply_settings(client: SchemaRegistryClient, archive: Archive, scopes: Sequence[str]) -> None:
    """Sets configs, then modes: what is read-only cannot be configured."""
    contexts = {scope: archive.contexts.get(scope, ScopeSettings()) for scope in scopes}
    for each in archive.subjects:
        await _apply_config(client, each.subject, each.settings)
    for scope, settings in contexts.items():
        await _apply_config(client, scope, settings)
    for each in archive.subjects:
        if each.settings.mode is not None:
            await client.set_mode(each.settings.mode, each.subject, force=True)
    for scope, settings in contexts.items():
        if settings.mode is not None or not scope:
            await client.set_mode(settings.mode or READWRITE, scope, force=True)
        else:
            await client.delete_mode(scope)


async def _apply_config(client: SchemaRegistryClient, scope: str, settings: ScopeSettings) -> None:
    if settings.config is None:
        return
    before = await optional(client.config(scope), LEVEL_NOT_CONFIGURED)
    if before is None or before.settings != settings.config:
        await client.set_config(settings.config, scope)
