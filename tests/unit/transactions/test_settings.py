"""The settings of transactions."""

from penstock.foundation.settings import Table
from penstock.transactions.settings import TRANSACTION_SETTINGS, TransactionSettings


def test_decisions_are_made_by_kafkas_defaults() -> None:
    values = Table(TRANSACTION_SETTINGS).parse({})
    assert TransactionSettings.of(values.__getitem__) == TransactionSettings(
        timeout_max_ms=900_000, id_expiration_ms=604_800_000, abort_interval_ms=10_000, expiry_interval_ms=3_600_000
    )
