"""CommitSet: commits or aborts all transactions of one Spark query atomically. Penstock's own API.

The commit is one batch of records. For many transactions, the records are prepared in time slices.
"""

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask, command, submit
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import NotAuthorized, PenstockError
from penstock.foundation.spark_ids import coordinator_key_of
from penstock.transactions.commands import CommitPreparedSet
from penstock.transactions.commit_sets import prepare_steps, refuse
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.wire.keys import ApiKey
from penstock.wire.messages.commit_set import COMMIT, CommitSetRequest, CommitSetResponse

PREPARED_MIN: Final = 200
"""A CommitSet that commits at least this many transactions prepares their records in time slices."""


@handles(ApiKey.COMMIT_SET)
async def commit_set(request: CommitSetRequest, call: Call, broker: Broker) -> CommitSetResponse | None:
    key = coordinator_key_of(request.query)
    try:
        for name in (key, *(each.transactional_id for each in request.participants)):
            call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    except NotAuthorized as error:
        return refuse(error)
    if request.action != COMMIT or len(request.participants) < PREPARED_MIN:
        ask(broker.transactions, key, request, call, refuse)
        return None
    try:
        machine = broker.transactions.find(key).machine
        assert isinstance(machine, TransactionCoordinator)
        steps = prepare_steps(machine.transactions, request, broker.clock.steady_ms())
        prepared = await broker.slices.run(steps)
    except PenstockError as error:
        return refuse(error)
    submit(broker.transactions, key, CommitPreparedSet(command(request, call), prepared), call, refuse)
    return None
