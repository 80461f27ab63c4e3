"""The address that clients and other brokers are told."""

import logging
from pathlib import Path

from penstock.cluster.settings import (
    ADVERTISED_HTTP,
    ADVERTISED_LISTENERS,
    BROKER_ID,
    LISTENERS,
    LOG_DIRS,
    NODE_ID,
)
from penstock.foundation.address import Address
from penstock.foundation.machine import reachable_host

logger = logging.getLogger(__name__)


def place_settings(node_id: int, listen: Address, told: Address, http: Address, data_dir: Path) -> dict[str, str]:
    """What a broker's own place is, by the names of settings. `told`: the address that clients are told."""
    return {
        NODE_ID: str(node_id),
        BROKER_ID: str(node_id),
        LISTENERS: f"PLAINTEXT://{listen}",
        ADVERTISED_LISTENERS: f"PLAINTEXT://{told}",
        LOG_DIRS: str(data_dir.resolve()),
        ADVERTISED_HTTP: str(http.found_at(told.host)),
    }


def advertised(advertise: Address | None, listen: Address) -> Address:
    """The address given by --advertise, or the one that is listened at. Warns of what may surprise.

    >>> str(advertised(None, Address.parse("127.0.0.1:9092")))
    '127.0.0.1:9092'
    """
    given = advertise or listen
    address = given.found_at(reachable_host())
    if address != given:
        logger.warning(
            "advertised_address_chosen address=%s reason=%r",
            address,
            f"clients cannot connect to {given}, so they are told this address; if they reach this broker by another "
            "one, give --advertise HOST:PORT",
        )
    if not listen.is_local:
        logger.warning(
            "kafka_open_to_all listen=%s reason=%r",
            listen,
            "there is no authentication: every client that reaches this port can read, write and delete everything",
        )
    return address
