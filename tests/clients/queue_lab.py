"""Helpers for tests of queues through the Python API."""

import itertools
from pathlib import Path

from tests.brokers import BrokerProcess

_numbers = itertools.count()

KEYS = """
keys:
  - {access_key: AKADMIN, secret: admin-secret}
  - {access_key: AKOTHER, secret: other-secret, owner: "111122223333"}
"""


def new_name() -> str:
    """A name that no other test has."""
    return f"jobs-{next(_numbers)}"


def with_credentials(folder: Path) -> BrokerProcess:
    """A broker that wants requests to queues to be signed; not started."""
    keys = folder / "keys.yaml"
    keys.write_text(KEYS)
    broker = BrokerProcess(folder)
    config = folder / "penstock.toml"  # what is not a setting stands above the table of settings
    config.write_text(f'credentials = "{keys}"\n{config.read_text()}')
    return broker
