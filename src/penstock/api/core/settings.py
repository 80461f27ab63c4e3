"""What a connection was asked for, and what that means for librdkafka. Pure."""

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
    """What is promised: see docs/delivery.md.

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
PROCESSING_TIMEOUT_S: Final = 300.0
SESSION_MS: Final = 45_000
"""A member that is silent for so long is taken for dead (KIP-735)."""
HEARTBEAT_MS: Final = 1_000
"""How soon a member hears of a rebalance. Kafka's own clients take three seconds, and twice that to hand over."""
LINGER_MANY_MS: Final = 5
"""How long messages wait for company when many are published: fuller batches, twice the throughput."""
TOPIC_PATIENCE_MS: Final = 5_000
"""How long a topic that nobody knows may still be on its way through the cluster."""
MESSAGE_BYTES_MAX: Final = 100_000_000
"""More than any topic takes: how large a message may be is the topic's to say."""

_TAKEN: Final = {
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
"""Settings that the promises rest on, and how to say instead what they would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What connect() was told."""

    servers: str
    delivery: Delivery | None = None
    timeout_s: float = TIMEOUT_S
    client_id: str = "penstock"
    refresh_s: float = REFRESH_S
    """How often subscriptions look for new topics and partitions."""
    options: Mapping[str, Any] = field(default_factory=dict)
    endpoint: str | None = None
    """Where queues are served, if the brokers are not to be asked."""
    keys: AccessKeys | None = None
    """Who signs requests to queues; None: they are not signed."""

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
            if name in _TAKEN:
                raise InvalidArgument(f"option {name!r} is not free; say it with {_TAKEN[name]}")


def check_positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < inf:
        raise InvalidArgument(f"{name}={value} makes no sense; give a number above 0")


def delivery_of(name: str | None, settings: Settings, otherwise: Delivery) -> Delivery:
    """What a call asks for; else what its connection does; else what is usual.

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
        raise InvalidArgument(f"delivery={name!r} is not known; give one of {known}") from None


def admin_config(settings: Settings) -> dict[str, Any]:
    return {
        "bootstrap.servers": settings.servers,
        "client.id": settings.client_id,
        # Brokers that come and go are librdkafka's daily life; what matters is raised, or logged by us.
        "log_level": 0,
        **settings.options,
    }


def producer_config(settings: Settings, delivery: Delivery, *, linger_ms: int) -> dict[str, Any]:
    """A producer that keeps a promise.

    At most once asks nobody and sends nothing twice. The other two ask all in-sync replicas and send again until
    they are told; exactly once numbers its messages, so that the broker knows those it has (KIP-98).
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
        # Before the message is given up: else it would only be too late, not without a topic.
        "topic.metadata.propagation.max.ms": min(TOPIC_PATIENCE_MS, int(settings.timeout_s * 500)),
        # As Kafka's own clients do it: equal keys meet in one partition, whoever published them.
        "partitioner": "murmur2_random",
        **admin_config(settings),
        **promises[delivery],
    }


def transactional_config(settings: Settings, transactional_id: str, timeout_s: float) -> dict[str, Any]:
    """A producer whose messages count all together or not at all."""
    timeout_ms = int(timeout_s * 1000)
    return {
        **producer_config(settings, Delivery.EXACTLY_ONCE, linger_ms=LINGER_MANY_MS),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": min(timeout_ms, int(settings.timeout_s * 1000)),
        # Starting over with the first addresses (KIP-899) makes librdkafka forget the broker that it has in mind as
        # the group's coordinator, and wait for it for ever: offsets could not be sent after a restart.
        "metadata.recovery.strategy": "none",
    }


def consumer_config(settings: Settings, group: str, processing_timeout_s: float) -> dict[str, Any]:
    """A consumer that commits only what it is told to, and sees nothing of transactions that did not commit."""
    processing_timeout_ms = int(processing_timeout_s * 1000)
    config = {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Where to begin is found out by us. This is for offsets that were trimmed away: the rest is still wanted.
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        "group.id": group,
        "max.poll.interval.ms": processing_timeout_ms,
        **admin_config(settings),
    }
    if not _is_new_protocol(config):
        config = {
            # Who keeps a partition through a rebalance need not give it up and read again (KIP-429).
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "session.timeout.ms": min(SESSION_MS, processing_timeout_ms),
            **config,
        }
    return config


def _is_new_protocol(config: Mapping[str, Any]) -> bool:
    """Whether the broker assigns partitions, and sets the times that classic members choose (KIP-848)."""
    return config.get("group.protocol") == "consumer"


def is_incremental(config: Mapping[str, Any]) -> bool:
    """Whether a consumer is told of changes to its partitions, rather than of all of them (KIP-429, KIP-848)."""
    return _is_new_protocol(config) or "cooperative" in config["partition.assignment.strategy"]
