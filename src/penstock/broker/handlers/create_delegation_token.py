"""CreateDelegationToken (KIP-48): creates a token for the client or, by an ACL, for another user (KIP-373)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.token_requests import NO_TIME, check_client, principal_of, split
from penstock.cluster.delegation_tokens import RENEWERS_MAX, check_principal
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse


@handles(ApiKey.CREATE_DELEGATION_TOKEN)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, call: Call, broker: Broker
) -> CreateDelegationTokenResponse:
    owner = call.principal
    if request.owner_principal_name:
        owner = principal_of(request.owner_principal_type, request.owner_principal_name)
    call.note_changes([owner])
    try:
        return await _create(request, owner, call, broker)
    except PenstockError as error:
        kind, name = split(owner)
        requester_kind, requester_name = split(call.principal)
        return CreateDelegationTokenResponse(
            error_code=error.code,
            principal_type=kind,
            principal_name=name,
            token_requester_principal_type=requester_kind,
            token_requester_principal_name=requester_name,
            issue_timestamp_ms=NO_TIME,
            expiry_timestamp_ms=NO_TIME,
            max_timestamp_ms=NO_TIME,
            token_id="",
            hmac=b"",
            throttle_time_ms=0,
        )


async def _create(
    request: CreateDelegationTokenRequest, owner: str, call: Call, broker: Broker
) -> CreateDelegationTokenResponse:
    """Creates the token. The checks are in the order of Kafka's."""
    check_client(call)
    if owner != call.principal:
        call.check(Operation.CREATE_TOKENS, ResourceType.USER, owner)
    if len(request.renewers) > RENEWERS_MAX:
        raise InvalidRequest(f"the token has {len(request.renewers)} renewers, at most {RENEWERS_MAX} are allowed")
    renewers = [principal_of(each.principal_type, each.principal_name) for each in request.renewers]
    for principal in (owner, *renewers):
        check_principal(principal)
    token = await broker.delegation_tokens.create(
        owner=owner, requester=call.principal, renewers=renewers, lifetime_ms=request.max_lifetime_ms
    )
    call.note_changes([token.token_id])
    kind, name = split(token.owner)
    requester_kind, requester_name = split(token.requester)
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=broker.delegation_tokens.hmac(token.token_id),
        throttle_time_ms=0,
    )
