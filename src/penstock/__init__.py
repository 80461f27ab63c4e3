"""Penstock: Kafka topics and SQS queues on one replicated log.

mq = penstock.connect("localhost:9092")
mq.publish("orders", {"id": 1})
mq.queue("jobs").send({"id": 1})
"""

from penstock.foundation.lazy import lazily

__version__ = "0.1.0"

# The types of these names are in __init__.pyi.
_HOMES = {
    "connect": "penstock.api.connection",
    "Connection": "penstock.api.connection",
    "connect_async": "penstock.api.async_connection",
    "AsyncConnection": "penstock.api.async_connection",
    "Subscription": "penstock.api.subscription",
    "ExactlyOnce": "penstock.api.subscription",
    "Transaction": "penstock.api.transaction",
    "AsyncSubscription": "penstock.api.async_subscription",
    "AsyncExactlyOnce": "penstock.api.async_subscription",
    "AsyncTransaction": "penstock.api.async_transaction",
    "Message": "penstock.api.message",
    "Outgoing": "penstock.api.message",
    "Published": "penstock.api.message",
    "Queue": "penstock.api.queue",
    "AsyncQueue": "penstock.api.async_queue",
    "Work": "penstock.api.work",
    "AsyncWork": "penstock.api.async_work",
    "Job": "penstock.api.job",
    "AsyncJob": "penstock.api.job",
    "OutgoingJob": "penstock.api.job",
    "SentJob": "penstock.api.job",
    "SendFailed": "penstock.api.job",
    "QueueCounts": "penstock.api.job",
    "Delivery": "penstock.api.settings",
    "HandledStore": "penstock.api.handled",
    "SqliteHandled": "penstock.api.handled",
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
