"""Which subjects mode IMPORT finds: it needs an empty scope, and removes soft-deleted schemas permanently."""

from typing import NamedTuple

from penstock.cli.common import plural
from penstock.cli.deletion import confirm
from penstock.cli.schema.access import RegistryAccess, run_registry
from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_models import context_of


class ScopeSubjects(NamedTuple):
    """The subjects of a scope."""

    visible: list[str]
    soft_deleted: list[str]


async def subjects_in(client: SchemaRegistryClient, scope: str) -> ScopeSubjects:
    """Returns the subjects of a scope: a subject, a context such as `:.staging:`, or "" for the default context."""
    context = context_of(scope)

    def is_inside(subject: str) -> bool:
        return context_of(subject) == context and scope in (subject, context)

    visible = set(filter(is_inside, await client.subjects(scope)))
    known = filter(is_inside, await client.subjects(scope, deleted=True))
    return ScopeSubjects(sorted(visible), sorted(set(known) - visible))


def confirm_import(access: RegistryAccess, scope: str, yes: bool) -> None:
    """Asks the user before mode IMPORT removes soft-deleted schemas permanently."""
    found = run_registry(access, lambda client: subjects_in(client, scope))
    if found.soft_deleted and not found.visible:  # with visible ones, the registry refuses to change the mode
        count = plural(len(found.soft_deleted), "soft-deleted subject")
        question = (
            f"Mode IMPORT removes {count} permanently: data written with their schemas cannot be read. Continue?"
        )
        confirm(question, yes, verb="set mode IMPORT", participle="changed")
