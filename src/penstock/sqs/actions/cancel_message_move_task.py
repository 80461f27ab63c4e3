"""CancelMessageMoveTask: what has not been moved yet stays where it is."""

from penstock.sqs import checks
from penstock.sqs.call import Call, Result
from penstock.sqs.moving import queue_at, read_handle
from penstock.sqs.registry import action


@action("CancelMessageMoveTask")
async def cancel_message_move_task(call: Call) -> Result:
    handle, source_arn = read_handle(checks.text(call.params, "TaskHandle"))
    queue_at(call, "SourceArn", source_arn)
    task = await call.service.cancel_move(handle)
    return {"ApproximateNumberOfMessagesMoved": task.moved}
