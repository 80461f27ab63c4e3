"""CommitSet: the transactions of one Spark query are ended by one decision; Penstock's own API."""

from penstock.broker.asking import ask
from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.spark_ids import coordinator_key_of
from penstock.transactions.sets import refuse
from penstock.wire.keys import ApiKey
from penstock.wire.messages.commit_set import CommitSetRequest


@handles(ApiKey.COMMIT_SET)
def commit_set(request: CommitSetRequest, call: Call, broker: Broker) -> None:
    ask(broker.transactions, coordinator_key_of(request.query), request, call, refuse)
