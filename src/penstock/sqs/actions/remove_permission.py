"""RemovePermission: there are no policies of queues here; who may do what is in the file of `--credentials`."""

from penstock.sqs.call import Call, Result
from penstock.sqs.errors import UNSUPPORTED_OPERATION, SqsError
from penstock.sqs.registry import action


@action("RemovePermission")
def remove_permission(call: Call) -> Result:
    call.queue()
    raise SqsError(
        UNSUPPORTED_OPERATION,
        "RemovePermission is not supported: what a key may do is said in the file that the broker was given with "
        "--credentials.",
    )
