"""GetQueueAttributes: returns the attributes of a queue, including its message counts."""

from penstock.sqs import checks
from penstock.sqs.attributes import ALL, COUNTS, KNOWN, shown, unknown
from penstock.sqs.call import Call, Result
from penstock.sqs.registry import action


@action("GetQueueAttributes")
async def get_queue_attributes(call: Call) -> Result:
    queue, given = call.queue(), checks.texts(call.params, "AttributeNames")
    for name in given:
        if name not in KNOWN and name != ALL:
            raise unknown(name)
    names = set(given)
    found = shown(queue.settings, call.arn)
    found |= {
        "QueueArn": call.arn(queue.name),
        "CreatedTimestamp": str(queue.created_ms // 1000),
        "LastModifiedTimestamp": str(queue.modified_ms // 1000),
    }
    is_all = ALL in names
    if is_all or not set(COUNTS).isdisjoint(names):
        counts = await call.service.counts(queue)
        found |= zip(COUNTS, map(str, (counts.available, counts.in_flight, counts.delayed)), strict=True)
    wanted = {name: value for name, value in found.items() if is_all or name in names}
    return {"Attributes": wanted} if wanted else {}
