"""DescribeDelegationToken (KIP-48): lists the tokens that the client owns, may renew, or may describe by an ACL."""

from collections.abc import Awaitable

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import make_answer, with_breaks
from penstock.broker.token_requests import check_client, principal_of, split
from penstock.cluster.delegation_tokens import DelegationToken
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribedToken,
    DescribedTokenRenewer,
)


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN)
def describe_delegation_token(
    request: DescribeDelegationTokenRequest, call: Call, broker: Broker
) -> DescribeDelegationTokenResponse | Awaitable[DescribeDelegationTokenResponse]:
    try:
        check_client(call)
        broker.delegation_tokens.check_enabled()
    except PenstockError as error:
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[], throttle_time_ms=0)
    return make_answer(broker, len(broker.image.delegation_tokens), _describe(request, call, broker))


def _describe(
    request: DescribeDelegationTokenRequest, call: Call, broker: Broker
) -> Steps[DescribeDelegationTokenResponse]:
    owners = None
    if request.owners is not None:
        owners = {principal_of(each.principal_type, each.principal_name) for each in request.owners}
    may_describe_any = call.allows_any(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
    tokens = []
    for token in with_breaks(broker.image.delegation_tokens.values()):
        if token is None:
            yield
        elif _is_wanted(token, owners) and _may_describe(token, call, may_describe_any):
            tokens.append(_described(token, broker))
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=tokens, throttle_time_ms=0)


def _is_wanted(token: DelegationToken, owners: set[str] | None) -> bool:
    """As in Kafka: the filter by owner finds the tokens that one of these principals may renew, too."""
    return owners is None or token.owner in owners or not owners.isdisjoint(token.renewers)


def _may_describe(token: DelegationToken, call: Call, may_describe_any: bool) -> bool:
    if token.belongs_to(call.principal):
        return True
    if call.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, audited=False):
        return True
    return may_describe_any and call.allows(
        Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, audited=False
    )


def _described(token: DelegationToken, broker: Broker) -> DescribedToken:
    kind, name = split(token.owner)
    requester_kind, requester_name = split(token.requester)
    return DescribedToken(
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=broker.delegation_tokens.hmac(token.token_id),
        renewers=[
            DescribedTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(split, token.renewers)
        ],
    )
