"""`penstock schema show`: one schema with its references."""

from collections.abc import Sequence
from dataclasses import dataclass

import click

from penstock.cli.common import echo_json
from penstock.cli.schema.access import RegistryAccess, registry_options, run_registry
from penstock.cli.schema.json_text import indent_json
from penstock.cli.schema.versions import version_option
from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_models import LATEST, RegisteredSchema, ResolvedReference


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    found: RegisteredSchema
    uses: Sequence[tuple[str, int]]
    """The subjects and versions that have the schema."""
    referenced_by: Sequence[int]
    """Ids of the schemas that refer to this version."""
    references: Sequence[ResolvedReference]


@click.command()
@click.argument("subject", required=False)
@version_option("A version; one that is named is shown even if it is soft-deleted.  [latest]")
@click.option("--id", "schema_id", type=click.IntRange(0), help="The schema with this id, which messages carry.")
@click.option(
    "--format", "layout", default="", metavar="NAME", help="A layout: resolved (Avro), serialized (Protobuf)."
)
@click.option("--references", "with_references", is_flag=True, help="Also show the schemas that it refers to.")
@click.option("--raw", is_flag=True, help="Print only the schema, exactly as it is registered.")
@registry_options
def show(
    subject: str | None,
    version: int | None,
    schema_id: int | None,
    layout: str,
    with_references: bool,
    raw: bool,
    access: RegistryAccess,
    as_json: bool,
) -> None:
    """Show a schema: the latest version of a subject, another version, or the schema with an id.

    The id of a schema in a context needs a subject of that context, too.

    \b
    Examples:
      penstock schema show orders-value
      penstock schema show orders-value --version 3 --references
      penstock schema show --id 7
      penstock schema show orders-value --raw > orders.avsc
    """
    if subject is None and schema_id is None:
        raise click.UsageError("give a SUBJECT, or --id NUMBER")
    if version is not None and (schema_id is not None or subject is None):
        raise click.UsageError("--version needs a SUBJECT, and no --id")

    async def work(client: SchemaRegistryClient) -> _Shown:
        name = subject or ""
        uses: Sequence[tuple[str, int]] = ()
        referrers: Sequence[int] = ()
        if schema_id is not None:
            found = await client.by_id(schema_id, subject=name, format=layout)
            uses = await client.uses(schema_id, subject=name)
        else:
            # A version that is named is shown even if it is soft-deleted.
            wanted = LATEST if version is None else version
            found = await client.version(name, wanted, deleted=wanted != LATEST, format=layout)
            referrers = await client.referenced_by(name, found.version) if not found.is_deleted else ()
        references = await client.references(found, subject=name) if with_references else ()
        return _Shown(found=found, uses=uses, referenced_by=referrers, references=references)

    shown = run_registry(access, work)
    if as_json:
        echo_json(_as_json(shown, with_references))
    elif raw:
        click.echo(shown.found.schema.text)
    else:
        _echo(shown)


def _echo(shown: _Shown) -> None:
    found = shown.found
    deleted = ", soft-deleted" if found.is_deleted else ""
    where = f"{found.subject} version {found.version}, id {found.id}" if found.subject else f"id {found.id}"
    click.echo(f"{where}, {found.schema.type}{deleted}")
    if shown.uses:
        click.echo(f"registered as {', '.join(f'{subject} version {version}' for subject, version in shown.uses)}")
    for reference in found.schema.references:
        click.echo(f"refers to {reference.subject} version {reference.version} as {reference.name}")
    if shown.referenced_by:
        ids = ", ".join(map(str, shown.referenced_by))
        click.echo(f"referenced by {'id' if len(shown.referenced_by) == 1 else 'ids'} {ids}")
    click.echo(f"\n{indent_json(found.schema.text)}")
    for each in shown.references:
        needed = each.found
        click.echo(
            f"\n{each.name}: {needed.subject} version {needed.version}, id {needed.id}, {needed.schema.type}\n"
        )
        click.echo(indent_json(needed.schema.text))


def _as_json(shown: _Shown, with_references: bool) -> dict[str, object]:
    found = shown.found
    facts: dict[str, object] = {
        "subject": found.subject or None,
        "version": found.version or None,
        "id": found.id,
        "guid": found.guid or None,
        "deleted": found.is_deleted,
        "type": found.schema.type,
        "references": [each.json() for each in found.schema.references],
        "metadata": found.schema.metadata,
        "rule_set": found.schema.rule_set,
        "schema": found.schema.text,
    }
    if shown.uses:
        facts["uses"] = [{"subject": subject, "version": version} for subject, version in shown.uses]
    else:
        facts["referenced_by"] = list(shown.referenced_by)
    if with_references:
        facts["resolved"] = [
            {
                "name": each.name,
                "subject": each.found.subject,
                "version": each.found.version,
                "id": each.found.id,
                "type": each.found.schema.type,
                "schema": each.found.schema.text,
            }
            for each in shown.references
        ]
    return facts
