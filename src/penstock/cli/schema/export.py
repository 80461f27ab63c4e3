"""`penstock schema export`: writes all schemas of a registry into a folder."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import click

from penstock.cli.common import echo_result, plural
from penstock.cli.schema.access import RegistryAccess, fetch_versions, optional, registry_options, run_registry
from penstock.cli.schema.archive import ArchiveWriter, ScopeSettings
from penstock.cli.schema.progress import progress_bar
from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_errors import (
    LEVEL_NOT_CONFIGURED,
    MODE_NOT_CONFIGURED,
    SUBJECT_NOT_FOUND,
)
from penstock.client.schema_registry_models import Json


class _Counts(NamedTuple):
    subjects: int
    versions: int


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@registry_options
def export(folder: Path, access: RegistryAccess, as_json: bool) -> None:
    """Write all schemas of a registry into a new folder, with their ids, references and settings.

    The folder has a file for each schema, such as subjects/orders-value/1.avsc. `penstock schema import` reads it.
    Soft-deleted versions are included, and the registry may be any with Confluent's REST API.

    \b
    Examples:
      penstock schema export schemas
      penstock schema export schemas --registry http://old-registry:8081
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.UsageError(f"{folder} is not empty: give the name of a new folder")

    async def work(client: SchemaRegistryClient) -> _Counts:
        # Listed first: a folder is not left behind if the registry cannot be reached.
        subjects = await client.subjects(deleted=True)
        contexts = await optional(client.contexts(), 404, 405) or ["."]  # older registries have none
        try:
            writer = ArchiveWriter(folder)
            versions = 0
            with progress_bar("subjects", len(subjects), is_wanted=not as_json) as advance:
                for subject in subjects:
                    found = await fetch_versions(client, subject, deleted=True)
                    if found:  # else it was deleted meanwhile
                        writer.add_subject(subject, await _settings(client, subject), found)
                        versions += len(found)
                    advance()
            prefixes = ["" if each == "." else f":{each}:" for each in contexts]
            writer.finish({each: await _settings(client, each) for each in prefixes})
        except OSError as error:
            raise click.ClickException(f"cannot write {folder}: {(error.strerror or str(error)).lower()}") from error
        return _Counts(len(subjects), versions)

    counts = run_registry(access, work)
    facts = {"folder": str(folder), "subjects": counts.subjects, "versions": counts.versions}
    text = f"exported {plural(counts.subjects, 'subject')} with {plural(counts.versions, 'version')} to {folder}"
    echo_result(facts, text, as_json=as_json)


async def _settings(client: SchemaRegistryClient, scope: str) -> ScopeSettings:
    config, mode = await asyncio.gather(
        optional(client.config(scope), LEVEL_NOT_CONFIGURED, SUBJECT_NOT_FOUND),
        optional(client.mode(scope), MODE_NOT_CONFIGURED, SUBJECT_NOT_FOUND),
    )
    settings: Json | None = None if config is None else config.settings
    return ScopeSettings(config=settings, mode=mode)
