"""CreateAccessKey: creates an access key of a user for SQS and the schema registry. Penstock's own API.

The response has the secret, once: the request is refused if others could read it on the wire.
"""

import logging
from collections.abc import Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.cluster.access_key_changes import plan_key
from penstock.cluster.access_keys import DEFAULT_ACCOUNT, StoredKey, check_account, check_patterns
from penstock.cluster.users import check_user_name
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.security.stored_keys import new_access_key, new_secret
from penstock.wire.keys import ApiKey
from penstock.wire.messages.create_access_key import CreateAccessKeyRequest, CreateAccessKeyResponse

logger = logging.getLogger(__name__)

_ALL: Final = ("*",)


class SecretWouldBeReadable(PenstockError):
    """The client is on another machine and does not use TLS."""

    code = ErrorCode.SECURITY_DISABLED


@handles(ApiKey.CREATE_ACCESS_KEY, in_cluster(Operation.ALTER))
async def create_access_key(request: CreateAccessKeyRequest, call: Call, broker: Broker) -> CreateAccessKeyResponse:
    try:
        return await _create(request, call, broker)
    except PenstockError as error:
        return CreateAccessKeyResponse(error_code=error.code, error_message=error.message)


async def _create(request: CreateAccessKeyRequest, call: Call, broker: Broker) -> CreateAccessKeyResponse:
    cipher = broker.stored_keys.cipher
    if not broker.stored_keys.may_send_secret(call.listener, call.host):
        raise SecretWouldBeReadable(
            "the secret of an access key is sent only over TLS or to the broker's machine; use a listener with "
            "SSL or SASL_SSL, or run the command on that machine, with a loopback address"
        )
    check_user_name(request.user)
    owner = request.owner or DEFAULT_ACCOUNT
    check_account(owner)
    access_key, secret = new_access_key(), new_secret()
    key = StoredKey(
        access_key=access_key,
        user=request.user,
        secret=cipher.encrypt(secret, access_key, request.user),
        cipher=cipher.fingerprint,
        owner=owner,
        actions=_patterns("actions", request.actions),
        queues=_patterns("queues", request.queues),
        subjects=_patterns("subjects", request.subjects),
        created_ms=broker.clock.now_ms(),
    )
    await broker.metadata.change(lambda image: plan_key(image, key))
    call.note_changes([access_key])
    logger.info("access_key_created key=%s user=%r owner=%s by=%r", access_key, request.user, owner, call.principal)
    return CreateAccessKeyResponse(access_key=access_key, secret=secret, owner=owner, created_ms=key.created_ms)


def _patterns(name: str, given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return _ALL
    check_patterns(name, given)
    return tuple(given)
