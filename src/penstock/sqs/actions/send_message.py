"""SendMessage: sends one message to a queue."""

from penstock.broker.queues.messages import Sent
from penstock.foundation.errors import PenstockError
from penstock.sqs.call import Call, Outcome, Result, then
from penstock.sqs.registry import action
from penstock.sqs.sent_message import read_message, send_result, too_long


@action("SendMessage")
def send_message(call: Call) -> Outcome:
    queue = call.queue()
    draft = read_message(queue, call.params, call.sender, call.trace)
    error = too_long(queue, draft)
    if error is not None:
        raise error

    def finish(found: list[Sent | PenstockError]) -> Result:
        sent = found[0]
        if isinstance(sent, PenstockError):
            raise sent
        return send_result(queue, draft, sent)

    return then(call.service.send(queue, (draft.message,)), finish)
