"""Settings of a connection, and the librdkafka configuration derived from them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any, Final, Literal

from penstock.api.errors import InvalidArgument
from penstock.client.address import parse_bootstrap
from penstock.client.http import Endpoint
from penstock.client.signing import AccessKeys


class Delivery(StrEnum):
    """Delivery guarantee: at-most-once, at-least-once or exactly-once (docs/delivery.md).

    >>> Delivery("at-least-once") is Delivery.AT_LEAST_ONCE
    True
    """

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


DeliveryName = Delivery | Literal["at-most-once", "at-least-once", "exactly-once"]

TIMEOUT_S: Final = 30.0
TRANSACTION_TIMEOUT_S: Final = 30.0
REFRESH_S: Final = 30.0
IN_FLIGHT_MAX: Final = 10_000
"""Default of `max_in_flight`: unacknowledged messages before publish_many waits for the oldest."""
PROCESSING_TIMEOUT_S: Final = 300.0
SESSION_MS: Final = 45_000
"""session.timeout.ms: time without a heartbeat after which a member is removed from its group (KIP-735)."""
HEARTBEAT_MS: Final = 1_000
"""heartbeat.interval.ms: the maximum time until a member notices a rebalance. Kafka's clients use 3 s."""
LINGER_MANY_MS: Final = 5
"""linger.ms for publish_many and publish_stream: fuller batches double the throughput."""
TOPIC_PATIENCE_MS: Final = 5_000
"""Milliseconds for which a topic may be reported as unknown before it counts as missing: it may be new."""
MESSAGE_BYTES_MAX: Final = 100_000_000
"""message.max.bytes of producers: higher than any topic allows, so that max.message.bytes of the topic decides."""

_MANAGED_OPTIONS: Final = {
    "bootstrap.servers": "the first argument of connect()",
    "metadata.broker.list": "the first argument of connect()",
    "client.id": "client_id",
    "group.id": "group=",
    "acks": "delivery=",
    "request.required.acks": "delivery=",
    "enable.idempotence": "delivery=",
    "transactional.id": "mq.transaction(…) or transactional_id=",
    "transaction.timeout.ms": "transaction_timeout_s=",
    "message.timeout.ms": "timeout_s=",
    "delivery.timeout.ms": "timeout_s=",
    "max.poll.interval.ms": "processing_timeout_s=",
    "enable.auto.commit": "delivery=",
    "enable.auto.offset.store": "delivery=",
    "auto.offset.reset": "from_=",
    "on_commit": "delivery=",
    "error_cb": "the logger 'penstock.api'",
}
"""librdkafka options that users cannot set, each with the argument to use instead: guarantees depend on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of connect()."""

    servers: str
    delivery: Delivery | None = None
    timeout_s: float = TIMEOUT_S
    client_id: str = "penstock"
    refresh_s: float = REFRESH_S
    """Interval, in seconds, at which subscriptions look for new topics and partitions."""
    options: Mapping[str, Any] = field(default_factory=dict)
    endpoint: str | None = None
    """The SQS endpoint; None: the endpoint that the brokers advertise."""
    keys: AccessKeys | None = None
    """Access keys that sign SQS requests; None: requests are not signed."""

    def __post_init__(self) -> None:
        try:
            parse_bootstrap(self.servers)
            if self.endpoint is not None:
                Endpoint.parse(self.endpoint)
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        check_positive("timeout_s", self.timeout_s)
        check_positive("refresh_s", self.refresh_s)
        for name in self.options:
            if name in _MANAGED_OPTIONS:
                raise InvalidArgument(f"option {name!r} is managed by Penstock; use {_MANAGED_OPTIONS[name]}")


def check_positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < inf:
        raise InvalidArgument(f"{name}={value} is invalid; give a number above 0")


def delivery_of(name: str | None, settings: Settings, otherwise: Delivery) -> Delivery:
    """Returns the delivery guarantee of a call: `name`, else the connection's guarantee, else `otherwise`.

    >>> delivery_of("at-most-once", Settings(servers="localhost:9092"), Delivery.EXACTLY_ONCE).value
    'at-most-once'
    """
    return parse_delivery(name) or settings.delivery or otherwise


def parse_delivery(name: str | None) -> Delivery | None:
    if name is None:
        return None
    try:
        return Delivery(name)
    except ValueError:
        known = ", ".join(repr(each.value) for each in Delivery)
        raise InvalidArgument(f"delivery={name!r} is unknown; give one of {known}") from None


def admin_config(settings: Settings) -> dict[str, Any]:
    return {
        "bootstrap.servers": settings.servers,
        "client.id": settings.client_id,
        # librdkafka logs every broker that restarts; important errors are raised, or logged by ErrorLogger.
        "log_level": 0,
        **settings.options,
    }


def producer_config(settings: Settings, delivery: Delivery, *, linger_ms: int) -> dict[str, Any]:
    """Returns the librdkafka configuration of a producer with this delivery guarantee.

    At-most-once waits for no acknowledgement and never retries. At-least-once and exactly-once wait for all in-sync
    replicas and retry; exactly-once adds sequence numbers, by which the broker drops duplicates (KIP-98).
    """
    promises: dict[Delivery, dict[str, Any]] = {
        Delivery.AT_MOST_ONCE: {"acks": 0, "retries": 0, "enable.idempotence": False},
        Delivery.AT_LEAST_ONCE: {"acks": "all", "enable.idempotence": False},
        Delivery.EXACTLY_ONCE: {"acks": "all", "enable.idempotence": True},
    }
    return {
        "linger.ms": linger_ms,
        "message.timeout.ms": int(settings.timeout_s * 1000),
        "message.max.bytes": MESSAGE_BYTES_MAX,
        # Less than message.timeout.ms: otherwise an unknown topic would be reported as a timeout.
        "topic.metadata.propagation.max.ms": min(TOPIC_PATIENCE_MS, int(settings.timeout_s * 500)),
        # As in Kafka's Java client: equal keys go to the same partition from all clients.
        "partitioner": "murmur2_random",
        **admin_config(settings),
        **promises[delivery],
    }


def transactional_config(settings: Settings, transactional_id: str, timeout_s: float) -> dict[str, Any]:
    timeout_ms = int(timeout_s * 1000)
    return {
        **producer_config(settings, Delivery.EXACTLY_ONCE, linger_ms=LINGER_MANY_MS),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": min(timeout_ms, int(settings.timeout_s * 1000)),
        # Rebootstrapping (KIP-899) makes librdkafka forget the broker that it knows as the group's coordinator, and
        # wait for it for ever: offsets could not be sent after a restart.
        "metadata.recovery.strategy": "none",
    }


def consumer_config(settings: Settings, group: str, processing_timeout_s: float) -> dict[str, Any]:
    """Returns the librdkafka configuration of a consumer: manual commits, and only committed messages are read."""
    processing_timeout_ms = int(processing_timeout_s * 1000)
    config = {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Start offsets are set explicitly. This applies to positions that were deleted: continue after them.
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        "group.id": group,
        "max.poll.interval.ms": processing_timeout_ms,
        **admin_config(settings),
    }
    if not _is_new_protocol(config):
        config = {
            # A member keeps its partitions through a rebalance, and need not read messages again (KIP-429).
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "session.timeout.ms": min(SESSION_MS, processing_timeout_ms),
            **config,
        }
    return config


def _is_new_protocol(config: Mapping[str, Any]) -> bool:
    """Returns whether the configuration selects the KIP-848 protocol: the broker assigns partitions."""
    return config.get("group.protocol") == "consumer"


def is_incremental(config: Mapping[str, Any]) -> bool:
    """Returns whether rebalance callbacks get only added or removed partitions (KIP-429, KIP-848)."""
    return _is_new_protocol(config) or "cooperative" in config["partition.assignment.strategy"]
