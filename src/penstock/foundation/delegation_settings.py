"""Settings of delegation tokens (KIP-48) by Kafka's names. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.foundation.settings import Kind, Setting, number

SECRET_KEY: Final = "delegation.token.secret.key"
MASTER_KEY: Final = "delegation.token.master.key"
MAX_LIFETIME_MS: Final = "delegation.token.max.lifetime.ms"
EXPIRY_TIME_MS: Final = "delegation.token.expiry.time.ms"
CHECK_INTERVAL_MS: Final = "delegation.token.expiry.check.interval.ms"
_DAY_MS: Final = 24 * 3_600_000

DELEGATION_SETTINGS: Final = (
    Setting(
        name=SECRET_KEY,
        kind=Kind.PASSWORD,
        default="",
        doc="The secret from which the passwords of delegation tokens are derived: the same on all brokers. With "
        "another secret, the passwords of all tokens change. Empty: there are no delegation tokens.",
    ),
    Setting(
        name=MASTER_KEY,
        kind=Kind.PASSWORD,
        default="",
        doc=f"The secret by its name before Kafka 3.0; used if {SECRET_KEY} is not set.",
    ),
    number(
        MAX_LIFETIME_MS,
        7 * _DAY_MS,
        1,
        "The longest lifetime of a delegation token: it cannot be renewed beyond.",
        Kind.LONG,
    ),
    number(
        EXPIRY_TIME_MS,
        _DAY_MS,
        1,
        "The time after which a delegation token expires unless it is renewed, and by which one renewal extends it.",
        Kind.LONG,
    ),
    number(
        CHECK_INTERVAL_MS,
        3_600_000,
        1,
        "How often the controller removes expired delegation tokens.",
        Kind.LONG,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationSettings:
    """Parsed settings of delegation tokens. The secret is left out of their text form."""

    secret_key: str = field(repr=False)
    """Empty if there are no delegation tokens."""
    max_lifetime_ms: int
    expiry_time_ms: int
    check_interval_s: float

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "DelegationSettings":
        """Raises InvalidConfig.

        >>> DelegationSettings.parse({"delegation.token.max.lifetime.ms": "60000"}).max_lifetime_ms
        60000
        """
        value: dict[str, Any] = {
            each.name: each.parse(given.get(each.name, each.default)) for each in DELEGATION_SETTINGS
        }
        return cls(
            secret_key=value[SECRET_KEY] or value[MASTER_KEY],
            max_lifetime_ms=value[MAX_LIFETIME_MS],
            expiry_time_ms=value[EXPIRY_TIME_MS],
            check_interval_s=value[CHECK_INTERVAL_MS] / 1000,
        )
