"""`penstock schema list|versions`: subjects and their versions; and the group of all commands."""

import click

from penstock.cli.common import echo_list
from penstock.cli.schema.access import RegistryAccess, fetch_versions, registry_options, run_registry
from penstock.cli.schema.deletion import delete
from penstock.cli.schema.export import export
from penstock.cli.schema.import_ import import_
from penstock.cli.schema.ownership import disown, own
from penstock.cli.schema.registration import check, register
from penstock.cli.schema.settings import compatibility, mode
from penstock.cli.schema.show import show
from penstock.client.schema_registry_errors import SUBJECT_NOT_FOUND, RegistryError


@click.group()
def schema() -> None:
    """Register, find, check and delete schemas of a schema registry.

    Every Penstock broker serves a registry at http://HOST:9324/registry, which any client of Confluent's registry can
    use. --registry names another one.

    \b
    Examples:
      penstock schema register orders-value orders.avsc
      penstock schema list
      penstock schema show orders-value
      penstock schema check orders-value new.avsc
    """


for each in (show, register, check, delete, compatibility, mode, export, import_, own, disown):
    schema.add_command(each)


@schema.command(name="list")
@click.option("--prefix", help="Only subjects with this prefix; :.staging: is a context, :*: means all.")
@click.option("--deleted", is_flag=True, help="Also soft-deleted subjects.")
@registry_options
def list_(prefix: str | None, deleted: bool, access: RegistryAccess, as_json: bool) -> None:
    """List subjects with their latest versions.

    \b
    Examples:
      penstock schema list
      penstock schema list --prefix orders --deleted
      penstock schema list --prefix :.staging: --json
    """
    found = run_registry(access, lambda client: client.schemas(prefix, latest_only=True, deleted=deleted))
    objects = [
        {
            "subject": each.subject,
            "version": each.version,
            "id": each.id,
            "type": each.schema.type,
            "deleted": each.is_deleted,
        }
        for each in found
    ]
    columns = ["SUBJECT", "#VERSION", "#ID", "TYPE", *(["DELETED"] if deleted else [])]
    nothing = "No subjects found; register a schema with `penstock schema register SUBJECT FILE`."
    echo_list(objects, columns, as_json=as_json, nothing=nothing)


@schema.command()
@click.argument("subject")
@click.option("--deleted", is_flag=True, help="Also soft-deleted versions.")
@registry_options
def versions(subject: str, deleted: bool, access: RegistryAccess, as_json: bool) -> None:
    """List the versions of a subject.

    \b
    Examples:
      penstock schema versions orders-value
      penstock schema versions orders-value --deleted --json
    """
    found = run_registry(access, lambda client: fetch_versions(client, subject, deleted=deleted))
    if not found:
        raise RegistryError(404, SUBJECT_NOT_FOUND, f"Subject '{subject}' not found")
    objects = [
        {
            "version": each.version,
            "id": each.id,
            "type": each.schema.type,
            "references": [str(one.name) for one in each.schema.references],
            "deleted": each.is_deleted,
        }
        for each in found
    ]
    rows = [
        [each.version, each.id, each.schema.type, ", ".join(one.name for one in each.schema.references) or None]
        + (["yes" if each.is_deleted else "no"] if deleted else [])
        for each in found
    ]
    columns = ["#VERSION", "#ID", "TYPE", "REFERS TO", *(["DELETED"] if deleted else [])]
    echo_list(objects, columns, rows, as_json=as_json)
