"""ChangeMessageVisibilityBatch: the timeouts of up to ten messages."""

from penstock.sqs.call import Call, Outcome
from penstock.sqs.registry import action
from penstock.sqs.settling import renew_error, renewal, settle_batch


@action("ChangeMessageVisibilityBatch")
def change_message_visibility_batch(call: Call) -> Outcome:
    return settle_batch(call, renewal, renew_error)
