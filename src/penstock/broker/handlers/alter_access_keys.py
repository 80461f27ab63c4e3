"""AlterAccessKeys: deletes, disables, enables and encrypts anew access keys of users. Penstock's own API."""

import logging
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.cluster.access_key_changes import (
    plan_deletion,
    plan_deletion_of_all,
    plan_enabled,
    plan_reencryption,
)
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
    REENCRYPT,
    AlterAccessKeysRequest,
    AlterAccessKeysResponse,
)

logger = logging.getLogger(__name__)

_LOGGED: Final = {
    DELETE: "access_key_deleted",
    DISABLE: "access_key_disabled",
    ENABLE: "access_key_enabled",
    DELETE_ALL: "access_keys_deleted",
    REENCRYPT: "access_keys_reencrypted",
}
BATCH: Final = 50
"""Number of users whose keys are encrypted in one transaction of the store."""


@handles(ApiKey.ALTER_ACCESS_KEYS, in_cluster(Operation.ALTER))
async def alter_access_keys(request: AlterAccessKeysRequest, call: Call, broker: Broker) -> AlterAccessKeysResponse:
    try:
        if request.action == REENCRYPT:
            await _reencrypt(broker)
        else:
            await broker.metadata.change(lambda image: _plan(request, image))
    except PenstockError as error:
        return AlterAccessKeysResponse(error_code=error.code, error_message=error.message)
    logger.info("%s key=%r user=%r by=%r", _LOGGED[request.action], request.access_key, request.user, call.principal)
    return AlterAccessKeysResponse()


async def _reencrypt(broker: Broker) -> None:
    """Encrypts all access keys with the first secret key of this broker. Raises InvalidRequest if it lacks a key."""
    known = broker.stored_keys
    fingerprint = known.cipher.fingerprint
    users = list(broker.image.access_keys)
    for at in range(0, len(users), BATCH):
        some = users[at : at + BATCH]
        plan = partial(plan_reencryption, users=some, fingerprint=fingerprint, encrypt=known.reencrypted)
        await broker.metadata.change(plan)
    keys = (key for of_user in broker.image.access_keys.values() for key in of_user)
    left = [key.access_key for key in keys if key.cipher != fingerprint]
    if left:
        raise InvalidRequest(
            f"{len(left)} access keys, such as {left[0]}, cannot be decrypted by this broker: sqs.secret.key lacks "
            "the key with which they were encrypted; add it, or delete the access keys. The others are encrypted anew"
        )


def _plan(request: AlterAccessKeysRequest, image: ClusterImage) -> list[Op]:
    if request.action == DELETE:
        return plan_deletion(image, request.access_key or "")
    if request.action in (DISABLE, ENABLE):
        return plan_enabled(image, request.access_key or "", request.action == ENABLE)
    if request.action == DELETE_ALL:
        return plan_deletion_of_all(image, request.user or "")
    raise InvalidRequest(f"AlterAccessKeys has no action {request.action}")
