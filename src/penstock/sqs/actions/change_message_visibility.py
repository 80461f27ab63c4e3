"""ChangeMessageVisibility: whoever has a message keeps it longer, or gives it back."""

from penstock.foundation.errors import PenstockError
from penstock.sqs.call import Call, Outcome, Result, then
from penstock.sqs.registry import action
from penstock.sqs.settling import renew_error, renewal


@action("ChangeMessageVisibility")
def change_message_visibility(call: Call) -> Outcome:
    queue = call.queue()

    def finish(found: list[PenstockError | None]) -> Result:
        error = renew_error(call.params, found[0])
        if error is not None:
            raise error
        return None

    return then(call.service.settle(queue, (renewal(queue, call.params),)), finish)
