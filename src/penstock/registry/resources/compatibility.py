"""`/compatibility`: tells whether a schema could be registered, without registering it."""

from typing import Any

from penstock.registry.bodies import requested_schema
from penstock.registry.rest import RestCall, route, version_of
from penstock.schemas.registry.errors import SchemaRejected, VersionNotFound
from penstock.schemas.registry.model import LATEST, SchemaVersion


@route("POST", "compatibility/subjects/*/versions/*")
async def check_against_version(call: RestCall, name: str, version: str) -> Any:
    subject, number = call.subject(name), version_of(version)
    found = await call.service.read(lambda state: state.version(subject, number))
    if found is None and number != LATEST:
        raise VersionNotFound(number)
    return await _check(call, subject, [] if found is None else [found])


@route("POST", "compatibility/subjects/*/versions")
async def check_against_subject(call: RestCall, name: str) -> Any:
    subject = call.subject(name)
    return await _check(call, subject, await call.service.read(lambda state: state.versions(subject)))


async def _check(call: RestCall, subject: str, previous: list[SchemaVersion]) -> Any:
    is_verbose, request = call.flag("verbose"), requested_schema(call, subject)
    try:
        messages = await call.service.compare(subject, request.schema, previous, normalize=call.flag("normalize"))
    except SchemaRejected as error:
        if not is_verbose:
            raise
        messages = [error.message]
    found: dict[str, Any] = {"is_compatible": not messages}
    return found | {"messages": messages} if is_verbose else found
