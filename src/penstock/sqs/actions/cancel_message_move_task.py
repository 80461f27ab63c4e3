"""CancelMessageMoveTask: stops a move task; messages not moved yet stay in the source queue."""

from penstock.broker.queues.messages import NoSuchMoveTask
from penstock.sqs import checks
from penstock.sqs.call import Call, Result
from penstock.sqs.move_tasks import queue_at, read_handle
from penstock.sqs.registry import action


@action("CancelMessageMoveTask")
async def cancel_message_move_task(call: Call) -> Result:
    handle, source_arn = read_handle(checks.text(call.params, "TaskHandle"))
    source = queue_at(call, "SourceArn", source_arn)
    if handle not in {task.handle for task in call.service.image.queue_moves.get(source.name, ())}:
        raise NoSuchMoveTask(f"queue {source.name!r} has no task with the handle {handle[:64]!r}")
    task = await call.service.cancel_move(handle)
    return {"ApproximateNumberOfMessagesMoved": task.moved}
