"""DeleteMessage: acknowledges a received message."""

from penstock.foundation.errors import PenstockError
from penstock.sqs.acknowledgement import delete_error, deletion
from penstock.sqs.call import Call, Outcome, Result, then
from penstock.sqs.registry import action


@action("DeleteMessage")
def delete_message(call: Call) -> Outcome:
    queue = call.queue()

    def finish(found: list[PenstockError | None]) -> Result:
        if found[0] is not None:
            error = delete_error(call.params, found[0])
            if error is not None:
                raise error
        return None

    return then(call.service.acknowledge(queue, (deletion(queue, call.params),)), finish)
