"""`/contexts` and what the registry tells about itself: `/`, `/v1/metadata/id` and `/v1/metadata/version`."""

from typing import Any, Final

import penstock
from penstock.registry.rest import RestCall, route
from penstock.schemas.registry.commands import DeleteContext
from penstock.schemas.registry.subjects import DEFAULT_CONTEXT, Subject

CONTEXTS_MAX: Final = 2000


@route("GET", "")
async def get_root(call: RestCall) -> Any:
    return {}


@route("GET", "contexts")
async def list_contexts(call: RestCall) -> Any:
    offset, limit = call.limits(CONTEXTS_MAX)
    prefix = call.text("contextPrefix")
    contexts = await call.service.read(lambda state: [DEFAULT_CONTEXT, *sorted(state.contexts)])
    return [each for each in contexts if each.startswith(prefix)][offset : offset + limit]


@route("DELETE", "contexts/*", writes=True)
async def delete_context(call: RestCall, name: str) -> Any:
    return await call.service.change(DeleteContext(Subject.parse(call.scope(name)).context))


@route("GET", "v1/metadata/id")
async def get_cluster_id(call: RestCall) -> Any:
    return {
        "scope": {"path": [], "clusters": {"kafka-cluster": call.cluster_id, "schema-registry-cluster": "_schemas"}}
    }


@route("GET", "v1/metadata/version")
async def get_version(call: RestCall) -> Any:
    return {"version": penstock.__version__, "commitId": ""}
