"""SendMessage: sends one message to a queue."""

from penstock.foundation.errors import PenstockError
from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action
from penstock.sqs.sent_message import read_message, send_result, too_long
from penstock.sqs.topic_rights import check_writes


@action("SendMessage", is_eager=True)
async def send_message(call: Call) -> Result:
    queue = call.queue()
    if queue.is_attached:
        check_writes(call, [queue])
    draft = read_message(queue, call.params, call.sender, call.trace)
    error = too_long(queue, draft)
    if error is not None:
        raise error
    (sent,) = await call.service.send(queue, (draft.message,))
    if isinstance(sent, PenstockError):
        raise sent
    return send_result(queue, draft, sent)
