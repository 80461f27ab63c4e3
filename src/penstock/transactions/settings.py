"""Broker settings of transactions, with Kafka's names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.foundation.settings import number, switch

TRANSACTION_SETTINGS: Final = (
    number("transaction.state.log.num.partitions", 50, 1, "Number of partitions of `__transaction_state`."),
    number("transaction.state.log.replication.factor", 3, 1, "Its replicas; with fewer brokers, one per broker."),
    number("transaction.state.log.min.isr", 2, 1, "Its min.insync.replicas; with fewer replicas, all of them."),
    number("transaction.state.log.segment.bytes", 100 << 20, 1024, "Its segment size."),
    number("transaction.max.timeout.ms", 900_000, 1, "The longest transaction timeout that a producer may set."),
    number("transactional.id.expiration.ms", 604_800_000, 1, "How long an unused transactional id is kept."),
    number(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        1,
        "How often timed-out transactions are aborted.",
    ),
    number(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        1,
        "How often unused transactional ids are expired.",
    ),
    switch(
        "transaction.partition.verification.enable",
        "true",
        "Whether a leader verifies with the coordinator that a batch belongs to an ongoing transaction (KIP-890).",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Parsed settings of the transaction coordinator."""

    timeout_max_ms: int
    id_expiration_ms: int
    abort_interval_ms: int
    expiry_interval_ms: int

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> "TransactionSettings":
        """Builds the settings; `value` returns the parsed value of a setting by name."""
        return cls(
            timeout_max_ms=value("transaction.max.timeout.ms"),
            id_expiration_ms=value("transactional.id.expiration.ms"),
            abort_interval_ms=value("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_interval_ms=value("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
