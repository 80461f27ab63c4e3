"""AlterAccessKeys: deletes, disables and enables access keys of users. Penstock's own API."""

import logging
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.cluster.access_key_changes import plan_deletion, plan_deletion_of_all, plan_enabled
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import Op
from penstock.foundation.acls import Operation
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.alter_access_keys import (
    DELETE,
    DELETE_ALL,
    DISABLE,
    ENABLE,
    AlterAccessKeysRequest,
    AlterAccessKeysResponse,
)

logger = logging.getLogger(__name__)

_LOGGED: Final = {
    DELETE: "access_key_deleted",
    DISABLE: "access_key_disabled",
    ENABLE: "access_key_enabled",
    DELETE_ALL: "access_keys_deleted",
}


@handles(ApiKey.ALTER_ACCESS_KEYS, in_cluster(Operation.ALTER))
async def alter_access_keys(request: AlterAccessKeysRequest, call: Call, broker: Broker) -> AlterAccessKeysResponse:
    try:
        await broker.metadata.change(lambda image: _plan(request, image))
    except PenstockError as error:
        return AlterAccessKeysResponse(error_code=error.code, error_message=error.message)
    logger.info("%s key=%r user=%r by=%r", _LOGGED[request.action], request.access_key, request.user, call.principal)
    return AlterAccessKeysResponse()


def _plan(request: AlterAccessKeysRequest, image: ClusterImage) -> list[Op]:
    if request.action == DELETE:
        return plan_deletion(image, request.access_key or "")
    if request.action in (DISABLE, ENABLE):
        return plan_enabled(image, request.access_key or "", request.action == ENABLE)
    if request.action == DELETE_ALL:
        return plan_deletion_of_all(image, request.user or "")
    raise InvalidRequest(f"AlterAccessKeys has no action {request.action}")
