"""AlterClientQuotas: sets and removes quotas of users, client ids and addresses; each entry gets its own result."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import with_breaks
from penstock.cluster.client_quotas import Change, check_change
from penstock.cluster.quota_changes import plan_quotas
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.foundation.quota_entities import Entity
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlteration,
    QuotaAlterationResult,
)

logger = logging.getLogger(__name__)

BATCH: Final = 50
"""Number of entities that are changed in one transaction of the store."""
Results = list[Entity | PenstockError]


@handles(ApiKey.ALTER_CLIENT_QUOTAS)
async def alter_client_quotas(
    request: AlterClientQuotasRequest, call: Call, broker: Broker
) -> AlterClientQuotasResponse:
    results: Results
    failed: dict[Entity, PenstockError] = {}
    try:
        call.check_cluster(Operation.ALTER_CONFIGS)
    except PenstockError as error:
        results = [error] * len(request.entries)
    else:
        changes: dict[Entity, Change] = {}
        results = await broker.slices.run(_parse(request.entries, changes))
        if not request.validate_only:
            failed = await _apply(broker, changes, call.principal)
    return await broker.slices.run(_answer(request.entries, results, failed))


def _parse(entries: Sequence[QuotaAlteration], changes: dict[Entity, Change]) -> Steps[Results]:
    """Adds valid changes to `changes`. Returns for each entry its entity, or what is wrong with it."""
    results: Results = []
    for entry in with_breaks(entries):
        if entry is None:
            yield
            continue
        try:
            entity, change = _change(entry)
            if entity in changes:
                raise InvalidRequest("the request changes the quotas of this entity twice")
        except PenstockError as error:
            results.append(error)
        else:
            changes[entity] = change
            results.append(entity)
    return results


def _answer(
    entries: Sequence[QuotaAlteration], results: Results, failed: dict[Entity, PenstockError]
) -> Steps[AlterClientQuotasResponse]:
    answers = []
    for pair in with_breaks(zip(entries, results, strict=True)):
        if pair is None:
            yield
        else:
            answers.append(_result(*pair, failed))
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=answers)


def _change(entry: QuotaAlteration) -> tuple[Entity, Change]:
    """Returns the entity and its new quotas, validated. Raises InvalidRequest."""
    entity = tuple(sorted(((each.entity_type, each.entity_name) for each in entry.entity), key=lambda pair: pair[0]))
    change = {op.key: None if op.remove else op.value for op in entry.ops}
    check_change(entity, change)
    return entity, change


async def _apply(broker: Broker, changes: dict[Entity, Change], principal: str) -> dict[Entity, PenstockError]:
    """Makes the changes that are possible; returns the errors of the others."""
    failed: dict[Entity, PenstockError] = {}
    entities = list(changes)
    for at in range(0, len(entities), BATCH):
        part = {entity: changes[entity] for entity in entities[at : at + BATCH]}
        failed_here: dict[Entity, PenstockError] = {}
        await broker.metadata.change(partial(plan_quotas, changes=part, failed=failed_here))
        failed |= failed_here
        for entity in part.keys() - failed_here.keys():
            logger.info("quotas_changed entity=%r quotas=%r by=%r", dict(entity), dict(part[entity]), principal)
    return failed


def _result(
    entry: QuotaAlteration, result: Entity | PenstockError, failed: dict[Entity, PenstockError]
) -> QuotaAlterationResult:
    error = result if isinstance(result, PenstockError) else failed.get(result)
    if error is None:
        return QuotaAlterationResult(error_code=ErrorCode.NONE, error_message=None, entity=entry.entity)
    return QuotaAlterationResult(error_code=error.code, error_message=error.message, entity=entry.entity)
