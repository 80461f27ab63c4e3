"""Penstock: Kafka topics and SQS queues on one replicated log.

mq = penstock.connect("localhost:9092")
mq.publish("orders", {"id": 1})
mq.queue("jobs").send({"id": 1})
"""

from penstock.foundation.lazy import lazily

__version__ = "0.1.0"

# The types of these names are in __init__.pyi.
_HOMES = {
    "connect": "penstock.api.sync.connection",
    "Connection": "penstock.api.sync.connection",
    "connect_async": "penstock.api.aio.connection",
    "AsyncConnection": "penstock.api.aio.connection",
    "Subscription": "penstock.api.sync.subscription",
    "ExactlyOnce": "penstock.api.sync.subscription",
    "Transaction": "penstock.api.sync.transaction",
    "AsyncSubscription": "penstock.api.aio.subscription",
    "AsyncExactlyOnce": "penstock.api.aio.subscription",
    "AsyncTransaction": "penstock.api.aio.transaction",
    "Message": "penstock.api.core.message",
    "Outgoing": "penstock.api.core.message",
    "Published": "penstock.api.core.message",
    "Queue": "penstock.api.sync.queue",
    "AsyncQueue": "penstock.api.aio.queue",
    "Work": "penstock.api.sync.work",
    "AsyncWork": "penstock.api.aio.work",
    "Job": "penstock.api.core.job",
    "AsyncJob": "penstock.api.core.job",
    "OutgoingJob": "penstock.api.core.job",
    "SentJob": "penstock.api.core.job",
    "SendFailed": "penstock.api.core.job",
    "QueueCounts": "penstock.api.core.job",
    "Delivery": "penstock.api.core.settings",
    "HandledStore": "penstock.api.core.handled",
    "SqliteHandled": "penstock.api.core.handled",
    "PenstockError": "penstock.foundation.errors",
    "ApiError": "penstock.api.errors",
    "Busy": "penstock.api.errors",
    "Closed": "penstock.api.errors",
    "Fenced": "penstock.api.errors",
    "InvalidArgument": "penstock.api.errors",
    "InvalidValue": "penstock.api.errors",
    "NotAllowed": "penstock.api.errors",
    "NotConnected": "penstock.api.errors",
    "PublishFailed": "penstock.api.errors",
    "SubscribeFailed": "penstock.api.errors",
    "TransactionAborted": "penstock.api.errors",
    "UnknownTopic": "penstock.api.errors",
    "UnknownQueue": "penstock.api.errors",
    "QueueFailed": "penstock.api.errors",
    "JobLost": "penstock.api.errors",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazily(__name__, _HOMES)
