"""ChangeMessageVisibility: extends the visibility timeout of a message, or makes it visible at once."""

from penstock.foundation.errors import PenstockError
from penstock.sqs.acknowledgement import renew_error, renewal
from penstock.sqs.call import Call, Outcome, Result, then
from penstock.sqs.registry import action


@action("ChangeMessageVisibility")
def change_message_visibility(call: Call) -> Outcome:
    queue = call.queue()

    def finish(found: list[PenstockError | None]) -> Result:
        error = renew_error(call.params, found[0])
        if error is not None:
            raise error
        return None

    return then(call.service.acknowledge(queue, (renewal(queue, call.params),)), finish)
