"""`/schemas`: schemas by id and by GUID, and all schemas of subjects with a prefix."""

from typing import Any, Final

from penstock.registry.bodies import schema_body, version_body
from penstock.registry.resources.subjects import matching
from penstock.registry.rest import RESULT_BYTES_MAX, NotFound, RestCall, ResultTooLarge, route
from penstock.schemas.registry.errors import SchemaNotFound
from penstock.schemas.registry.model import SCHEMA_TYPES, SchemaVersion
from penstock.schemas.registry.state import RegistryState
from penstock.schemas.registry.subjects import DEFAULT_CONTEXT, Subject

SCHEMAS_MAX: Final = 1000
VERSIONS_MAX: Final = 20_000


@route("GET", "schemas")
async def list_schemas(call: RestCall) -> Any:
    offset, limit = call.limits(SCHEMAS_MAX)
    prefix, is_deleted = call.text("subjectPrefix"), call.flag("deleted")
    latest_only, rule_type = call.flag("latestOnly"), call.text("ruleType")

    def read(state: RegistryState) -> list[SchemaVersion]:
        found: list[SchemaVersion] = []
        size = 0
        for name in matching(state, prefix, deleted=is_deleted):
            if not call.may_read(name):
                continue
            versions = state.versions(name, deleted=is_deleted)
            for each in versions[-1:] if latest_only else versions:
                if rule_type and not _has_rule(each, rule_type):
                    continue
                found.append(each)
                size += each.schema.size_bytes if len(found) > offset else 0
                if size > RESULT_BYTES_MAX:
                    raise ResultTooLarge(
                        f"The schemas have more than {RESULT_BYTES_MAX} bytes; ask for less with limit and offset"
                    )
                if len(found) >= offset + limit:
                    return found[offset:]
        return found[offset:]

    return [version_body(each) for each in await call.service.read(read)]


def _has_rule(found: SchemaVersion, kind: str) -> bool:
    rules = found.schema.rule_set
    return rules is not None and any(rule.type == kind for rule in rules.rules)


@route("GET", "schemas/types")
async def list_types(call: RestCall) -> Any:
    return list(SCHEMA_TYPES)


@route("GET", "schemas/ids/*")
async def get_by_id(call: RestCall, number: str) -> Any:
    found = await _find(call, _id_of(number))
    text = await call.service.formatted(found, call.text("format"))
    body = schema_body(
        found, text=text, shows_subject=bool(call.text("subject")), reference_format=call.text("referenceFormat")
    )
    if call.flag("fetchMaxId"):
        context = Subject.parse(found.subject).context
        body["maxId"] = await call.service.read(lambda state: state.next_id(context) - 1)
    return body


@route("GET", "schemas/ids/*/schema")
async def get_text_by_id(call: RestCall, number: str) -> Any:
    found = await _find(call, _id_of(number))
    return (await call.service.formatted(found, call.text("format"))).encode()


@route("GET", "schemas/ids/*/subjects")
async def list_subjects_of_id(call: RestCall, number: str) -> Any:
    names = dict.fromkeys(each.subject for each in await _uses(call, number))
    offset, limit = call.limits(VERSIONS_MAX)
    return list(names)[offset : offset + limit]


@route("GET", "schemas/ids/*/versions")
async def list_versions_of_id(call: RestCall, number: str) -> Any:
    found = [{"subject": each.subject, "version": each.version} for each in await _uses(call, number)]
    offset, limit = call.limits(VERSIONS_MAX)
    return found[offset : offset + limit]


@route("GET", "schemas/guids/*")
async def get_by_guid(call: RestCall, guid: str) -> Any:
    def read(state: RegistryState) -> SchemaVersion:
        for context, schema_id in _ids_of_guid(state, guid):
            for each in _readable(call, state, context, schema_id):
                return each
        raise SchemaNotFound(guid[:100])

    found = await call.service.read(read)
    text = await call.service.formatted(found, call.text("format"))
    return schema_body(found, text=text, shows_subject=False)


@route("GET", "schemas/guids/*/ids")
async def list_ids_of_guid(call: RestCall, guid: str) -> Any:
    def read(state: RegistryState) -> list[tuple[str, int]]:
        return [each for each in _ids_of_guid(state, guid) if _readable(call, state, *each)]

    return [{"context": context, "id": schema_id} for context, schema_id in await call.service.read(read)]


def _ids_of_guid(state: RegistryState, guid: str) -> list[tuple[str, int]]:
    """Returns context and id of the schemas with a GUID, the default context first."""
    contexts = sorted(state.ids, key=lambda context: (context != DEFAULT_CONTEXT, context))
    return [(context, state.ids[context].by_guid[guid]) for context in contexts if guid in state.ids[context].by_guid]


def _id_of(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise NotFound
    return int(text)


async def _find(call: RestCall, schema_id: int) -> SchemaVersion:
    """Returns a version with an id: that of the subject in the parameter `subject`, if it has the id. Otherwise any
    version in the subject's context; for a subject without a context, all contexts with this subject are searched."""
    wanted = Subject.parse(call.scope(call.text("subject")))

    def read(state: RegistryState) -> SchemaVersion:
        found = _find_in(call, state, wanted, schema_id)
        if found is None:
            raise SchemaNotFound(schema_id)
        return found

    return await call.service.read(read)


def _readable(call: RestCall, state: RegistryState, context: str, schema_id: int) -> list[SchemaVersion]:
    """Returns the versions with an id in those subjects that the client may read."""
    return [each for each in state.uses(context, schema_id) if call.may_read(each.subject)]


def _find_in(call: RestCall, state: RegistryState, wanted: Subject, schema_id: int) -> SchemaVersion | None:
    uses = _readable(call, state, wanted.context, schema_id)
    own = [each for each in uses if each.subject == str(wanted)]
    if own:
        return own[-1]
    if not wanted.name:
        return uses[0] if uses else None
    if wanted.context != DEFAULT_CONTEXT:
        return None
    for context in sorted(state.contexts):
        name = str(Subject(context, wanted.name))
        own = [each for each in _readable(call, state, context, schema_id) if each.subject == name]
        if own:
            return own[-1]
    return uses[0] if uses else None


async def _uses(call: RestCall, number: str) -> list[SchemaVersion]:
    """Returns the versions that have an id; without soft-deleted ones, unless the client asks for them."""
    found, is_deleted = await _find(call, _id_of(number)), call.flag("deleted")
    context = Subject.parse(found.subject).context
    uses = await call.service.read(lambda state: _readable(call, state, context, found.id))
    return [each for each in uses if is_deleted or not each.deleted]
