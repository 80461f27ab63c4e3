"""ShareState: reads or changes share-group delivery state at a partition's leader. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.share.delivery_states import answer_as_leader
from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_state import ShareStateRequest


@handles(ApiKey.SHARE_STATE)
def share_state(request: ShareStateRequest, call: Call, broker: Broker) -> None:
    answer_as_leader(broker, request, call.answer)
