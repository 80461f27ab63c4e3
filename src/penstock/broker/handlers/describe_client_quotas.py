"""DescribeClientQuotas: lists the quotas of users, client ids and addresses that match a filter."""

from collections.abc import Awaitable
from enum import IntEnum

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import make_answer, with_breaks
from penstock.foundation.acls import Operation
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.quota_entities import CLIENT_ID, IP, USER, Entity
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaComponent,
    QuotaEntity,
    QuotaEntry,
    QuotaValue,
)


class Match(IntEnum):
    """How a component of the filter selects entities."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, in_cluster(Operation.DESCRIBE_CONFIGS))
def describe_client_quotas(
    request: DescribeClientQuotasRequest, call: Call, broker: Broker
) -> DescribeClientQuotasResponse | Awaitable[DescribeClientQuotasResponse]:
    try:
        _check(request)
    except InvalidRequest as error:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, entries=None
        )
    return make_answer(broker, len(broker.image.client_quotas), _describe(request, broker))


def _check(request: DescribeClientQuotasRequest) -> None:
    types = [component.entity_type for component in request.components]
    for component in request.components:
        if component.entity_type not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"Custom entity type {component.entity_type} not supported")
        if component.match_type not in Match._value2member_map_:
            raise InvalidRequest(f"Unknown match type {component.match_type}; expected 0, 1 or 2")
        if component.match_type == Match.EXACT and component.match is None:
            raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if component.match_type != Match.EXACT and component.match is not None:
            raise InvalidRequest("only MATCH_TYPE_EXACT has a match string")
    if len(set(types)) != len(types):
        raise InvalidRequest("Entity type cannot appear more than once in the filter")
    if IP in types and len(types) > 1:
        raise InvalidRequest("Entity type ip cannot be combined with other entity types")


def _describe(request: DescribeClientQuotasRequest, broker: Broker) -> Steps[DescribeClientQuotasResponse]:
    entries = []
    for found in with_breaks(broker.image.client_quotas.items()):
        if found is None:
            yield
        elif _matches(found[0], request):
            entity, quotas = found
            entries.append(
                QuotaEntry(
                    entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[QuotaValue(key=name, value=float(value)) for name, value in quotas.items()],
                )
            )
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=0, error_message=None, entries=entries)


def _matches(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    names = dict(entity)
    if request.strict and len(names) != len(request.components):
        return False
    return all(_fits(component, names) for component in request.components)


def _fits(component: QuotaComponent, names: dict[str, str | None]) -> bool:
    if component.entity_type not in names:
        return False
    if component.match_type == Match.ANY:
        return True
    return names[component.entity_type] == component.match  # None for the default
