"""ShareState: what the coordinator of a share group asks the leaders of partitions. An API of our own."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.share.delivery_states import answer_here
from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_state import ShareStateRequest


@handles(ApiKey.SHARE_STATE)
def share_state(request: ShareStateRequest, call: Call, broker: Broker) -> None:
    answer_here(broker, request, call.answer)
