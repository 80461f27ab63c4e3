"""`/subjects`: lists subjects, looks schemas up, registers and deletes versions."""

from itertools import islice
from typing import Any, Final

from penstock.registry.access import WRITE
from penstock.registry.bodies import not_found, registered_body, requested_schema, version_body
from penstock.registry.rest import RestCall, route, version_of
from penstock.schemas.registry.commands import DeleteSubject, DeleteVersion
from penstock.schemas.registry.errors import InvalidSubject, SubjectNotFound, VersionNotFound
from penstock.schemas.registry.model import SchemaVersion
from penstock.schemas.registry.state import RegistryState
from penstock.schemas.registry.subjects import ANY_CONTEXT, Subject, is_valid

SUBJECTS_MAX: Final = 20_000
VERSIONS_MAX: Final = 20_000
_ALL: Final = ":*:"


@route("GET", "subjects")
async def list_subjects(call: RestCall) -> Any:
    offset, limit = call.limits(SUBJECTS_MAX)
    prefix = call.text("subjectPrefix", _ALL)
    only_deleted = call.flag("deletedOnly")
    is_deleted = only_deleted or call.flag("deleted")

    def read(state: RegistryState) -> list[str]:
        names = (name for name in matching(state, prefix, deleted=is_deleted) if call.may_read(name))
        if only_deleted:
            names = (name for name in names if name not in state.visible)
        return list(islice(names, offset, offset + limit))

    return await call.service.read(read)


def matching(state: RegistryState, prefix: str, *, deleted: bool) -> list[str]:
    """Returns the subjects with a prefix in one context, or in all for a prefix such as `:*:orders`; sorted."""
    wanted = Subject.parse(prefix)
    if wanted.context == ANY_CONTEXT:
        found = set(state.with_prefix(wanted.name, deleted=deleted))
        for context in state.contexts:
            found.update(state.with_prefix(f":{context}:{wanted.name}", deleted=deleted))
        return sorted(found)
    names = state.with_prefix(prefix, deleted=deleted)
    return [name for name in names if prefix or not name.startswith(":.")]


@route("POST", "subjects/*")
async def look_up(call: RestCall, name: str) -> Any:
    subject, is_deleted = call.subject(name), call.flag("deleted")
    request = requested_schema(call, subject)
    found = await call.service.look_up(subject, request.schema, normalize=call.flag("normalize"), deleted=is_deleted)
    if found is None:
        raise not_found(call.service.state, subject, deleted=is_deleted)
    return await _shown(call, found)


@route("GET", "subjects/*/metadata")
async def latest_with_metadata(call: RestCall, name: str) -> Any:
    """The latest version whose metadata has the properties that the parameters `key` and `value` list."""
    subject, is_deleted = call.subject(name), call.flag("deleted")
    wanted = set(zip(call.texts("key"), call.texts("value"), strict=False))

    def read(state: RegistryState) -> SchemaVersion:
        for each in reversed(state.versions(subject, deleted=is_deleted)):
            metadata = each.schema.metadata
            if wanted <= set(() if metadata is None else metadata.properties):
                return each
        raise not_found(state, subject, deleted=is_deleted)

    return await _shown(call, await call.service.read(read))


@route("DELETE", "subjects/*", writes=True)
async def delete_subject(call: RestCall, name: str) -> Any:
    return await call.service.change(DeleteSubject(call.subject(name), call.flag("permanent")))


# -- versions


@route("GET", "subjects/*/versions")
async def list_versions(call: RestCall, name: str) -> Any:
    subject = call.subject(name)
    offset, limit = call.limits(VERSIONS_MAX)
    only_deleted, as_negative = call.flag("deletedOnly"), call.flag("deletedAsNegative")
    is_deleted = only_deleted or call.flag("deleted")

    def read(state: RegistryState) -> list[int]:
        if not state.has_subject(subject, deleted=is_deleted):
            raise SubjectNotFound(subject)
        versions = state.versions(subject, deleted=is_deleted or as_negative)
        if only_deleted and not as_negative:
            versions = [each for each in versions if each.deleted]
        numbers = (-each.version if as_negative and each.deleted else each.version for each in versions)
        return list(islice(numbers, offset, offset + limit))

    return await call.service.read(read)


@route("POST", "subjects/*/versions", writes=True, right=WRITE)
async def register(call: RestCall, name: str) -> Any:
    if not is_valid(name):
        raise InvalidSubject(name)
    subject = call.subject(name)
    request = requested_schema(call, subject)
    found = await call.service.register(subject, request, normalize=call.flag("normalize"))
    body = registered_body(found)
    if call.text("format") or not request.schema.text.strip():
        body["schema"] = await call.service.formatted(found, call.text("format"))
    return body


@route("GET", "subjects/*/versions/*")
async def get_version(call: RestCall, name: str, version: str) -> Any:
    return await _shown(call, await _find(call, name, version))


@route("GET", "subjects/*/versions/*/schema")
async def get_schema(call: RestCall, name: str, version: str) -> Any:
    found = await _find(call, name, version)
    return (await call.service.formatted(found, call.text("format"))).encode()


@route("GET", "subjects/*/versions/*/referencedby")
async def list_referrers(call: RestCall, name: str, version: str) -> Any:
    found, is_deleted = await _find(call, name, version), call.flag("deleted")
    offset, limit = call.limits(VERSIONS_MAX)

    def read(state: RegistryState) -> list[int]:
        referrers = state.referrers_of(found.subject, found.version, deleted=is_deleted)
        return [schema_id for _, schema_id in referrers[offset : offset + limit]]

    return await call.service.read(read)


@route("DELETE", "subjects/*/versions/*", writes=True)
async def delete_version(call: RestCall, name: str, version: str) -> Any:
    command = DeleteVersion(call.subject(name), version_of(version), call.flag("permanent"))
    return await call.service.change(command)


async def _find(call: RestCall, name: str, text: str) -> SchemaVersion:
    subject, version, is_deleted = call.subject(name), version_of(text), call.flag("deleted")

    def read(state: RegistryState) -> SchemaVersion:
        found = state.version(subject, version, deleted=is_deleted)
        if found is None and not state.has_subject(subject, deleted=is_deleted):
            raise SubjectNotFound(subject)
        if found is None:
            raise VersionNotFound(version)
        return found

    return await call.service.read(read)


async def _shown(call: RestCall, found: SchemaVersion) -> dict[str, Any]:
    text = await call.service.formatted(found, call.text("format"))
    return version_body(found, text=text, reference_format=call.text("referenceFormat"))
