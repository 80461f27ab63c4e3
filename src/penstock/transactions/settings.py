"""The settings of transactions, by Kafka's names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.foundation.settings import number, switch

TRANSACTION_SETTINGS: Final = (
    number("transaction.state.log.num.partitions", 50, 1, "Partitions of the topic that transactions are kept in."),
    number("transaction.state.log.replication.factor", 3, 1, "Its replicas, or as many as there are brokers."),
    number("transaction.state.log.min.isr", 2, 1, "How many of them must be in sync, or as many as there are."),
    number("transaction.state.log.segment.bytes", 100 << 20, 1024, "Size of its segments."),
    number("transaction.max.timeout.ms", 900_000, 1, "The longest that a producer may let a transaction last."),
    number("transactional.id.expiration.ms", 604_800_000, 1, "How long a transactional id that is not used is kept."),
    number(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        1,
        "How often transactions that last too long are looked for.",
    ),
    number(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        1,
        "How often transactional ids that are not used any more are looked for.",
    ),
    switch(
        "transaction.partition.verification.enable",
        "true",
        "Whether a batch is only taken into a transaction that its coordinator knows of (KIP-890).",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """The settings that decisions are made by, parsed."""

    timeout_max_ms: int
    id_expiration_ms: int
    abort_interval_ms: int
    expiry_interval_ms: int

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> "TransactionSettings":
        """`value` gives a setting by its name, parsed."""
        return cls(
            timeout_max_ms=value("transaction.max.timeout.ms"),
            id_expiration_ms=value("transactional.id.expiration.ms"),
            abort_interval_ms=value("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_interval_ms=value("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
