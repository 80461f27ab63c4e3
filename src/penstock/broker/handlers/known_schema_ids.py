"""KnownSchemaIds: tells which schema ids are registered, for topics that validate them. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import CLUSTER_ACTION
from penstock.broker.registry import handles
from penstock.broker.schemas.id_questions import answer
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.known_schema_ids import KnownSchemaIdsRequest, KnownSchemaIdsResponse


@handles(ApiKey.KNOWN_SCHEMA_IDS, CLUSTER_ACTION)
async def known_schema_ids(request: KnownSchemaIdsRequest, call: Call, broker: Broker) -> KnownSchemaIdsResponse:
    try:
        return await answer(broker, request)
    except PenstockError as error:
        return KnownSchemaIdsResponse(error_code=error.code, error_message=error.message)
