"""`penstock schema delete`: soft-deletes versions and subjects, or deletes them permanently."""

from dataclasses import dataclass

import click

from penstock.cli.common import echo_result, plural
from penstock.cli.deletion import confirm
from penstock.cli.schema.access import RegistryAccess, fetch_versions, registry_options, run_registry
from penstock.cli.schema.versions import version_option
from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_errors import (
    SUBJECT_NOT_FOUND,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_FOUND,
    RegistryError,
)
from penstock.client.schema_registry_models import LATEST, RegisteredSchema
from penstock.foundation.errors import PenstockError

_SHOWN_MAX = 10
"""Maximum number of ids that a question lists."""
_PERMANENT_ADVICE = "give --permanent to delete it for good"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is deleted."""

    subject: str
    is_whole_subject: bool
    versions: tuple[RegisteredSchema, ...]
    permanent: bool

    @property
    def visible(self) -> list[RegisteredSchema]:
        """The versions that are not soft-deleted yet."""
        return [each for each in self.versions if not each.is_deleted]

    @property
    def what(self) -> str:
        """Names the versions: all of the subject, or one."""
        if not self.is_whole_subject:
            return f"version {self.versions[0].version} of subject {self.subject}"
        return f"subject {self.subject} with {plural(len(self.versions), 'version')}"

    def question(self) -> str:
        """Says what is lost."""
        ids = _listed([each.id for each in self.versions])
        if self.permanent:
            return (
                f"Delete {self.what} permanently? Data with id {ids} cannot be read any more, unless another version "
                "has the same schema."
            )
        return f"Soft-delete {self.what}? It is no longer listed and compared; data with id {ids} can still be read."

    async def carry_out(self, client: SchemaRegistryClient) -> None:
        is_soft_deleted = False
        try:
            if self.visible:
                await self._delete(client, permanent=False)
                is_soft_deleted = True
            if self.permanent:
                await self._delete(client, permanent=True)
        except PenstockError as error:
            if is_soft_deleted:
                raise click.ClickException(f"{self.what} is soft-deleted, but not permanently: {error}") from error
            raise

    async def _delete(self, client: SchemaRegistryClient, *, permanent: bool) -> None:
        if self.is_whole_subject:
            await client.delete_subject(self.subject, permanent=permanent)
        else:
            await client.delete_version(self.subject, self.versions[0].version, permanent=permanent)


@click.command()
@click.argument("subject")
@version_option("Only this version.  [all]")
@click.option("--permanent", is_flag=True, help="Delete for good, also what is not soft-deleted yet.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@registry_options
def delete(
    subject: str, version: int | None, permanent: bool, yes: bool, access: RegistryAccess, as_json: bool
) -> None:
    """Delete a subject, or one of its versions. Asks for confirmation; without a terminal, --yes is required.

    A soft-deleted version is no longer listed, and new versions are not compared with it, but data written with it
    can still be read. With --permanent it is removed: data written with it cannot be read any more.
    A version that other schemas refer to cannot be deleted.

    \b
    Examples:
      penstock schema delete orders-value --version 2
      penstock schema delete orders-value
      penstock schema delete orders-value --permanent --yes
    """
    plan = run_registry(access, lambda client: _plan(client, subject, version, permanent))
    confirm(plan.question(), yes)
    run_registry(access, plan.carry_out)
    numbers = [each.version for each in plan.versions]
    facts = {"subject": subject, "versions": numbers, "permanent": permanent}
    text = f"{'deleted' if permanent else 'soft-deleted'} {plan.what}{' permanently' if permanent else ''}"
    echo_result(facts, text, as_json=as_json)


async def _plan(client: SchemaRegistryClient, subject: str, version: int | None, permanent: bool) -> _Plan:
    """Returns what would be deleted. Raises RegistryError if it does not exist, or is soft-deleted already."""
    found = await fetch_versions(client, subject, deleted=True)
    if not found:
        raise RegistryError(404, SUBJECT_NOT_FOUND, f"Subject '{subject}' not found")
    if version is not None:
        latest = max((each.version for each in found if not each.is_deleted), default=0)
        found = [each for each in found if each.version == (latest if version == LATEST else version)]
    what = f"Subject '{subject}'" if version is None else f"Version {_shown(version)} of subject '{subject}'"
    if not found:
        raise RegistryError(404, VERSION_NOT_FOUND, f"{what} not found")
    if not permanent:
        found = [each for each in found if not each.is_deleted]
        if not found:
            raise RegistryError(404, SUBJECT_SOFT_DELETED, f"{what} is soft-deleted already", _PERMANENT_ADVICE)
    return _Plan(subject=subject, is_whole_subject=version is None, versions=tuple(found), permanent=permanent)


def _shown(version: int) -> str:
    return "latest" if version == LATEST else str(version)


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN_MAX]))
    return f"{shown} and {len(numbers) - _SHOWN_MAX} more" if len(numbers) > _SHOWN_MAX else shown
