"""The address that a broker advertises, and its values for node.id, listeners, log.dirs and similar settings."""

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
from penstock.foundation.host import reachable_host

logger = logging.getLogger(__name__)


def identity_settings(
    node_id: int, listen: Address, advertised: Address, http: Address, data_dir: Path
) -> dict[str, str]:
    """Returns the broker's id, addresses and data folder under the names of Kafka's broker settings."""
    return {
        NODE_ID: str(node_id),
        BROKER_ID: str(node_id),
        LISTENERS: f"PLAINTEXT://{listen}",
        ADVERTISED_LISTENERS: f"PLAINTEXT://{advertised}",
        LOG_DIRS: str(data_dir.resolve()),
        ADVERTISED_HTTP: str(http.advertised_as(advertised.host)),
    }


def advertised_address(advertise: Address | None, listen: Address) -> Address:
    """Returns `advertise` or, if None, `listen`. A host that clients cannot connect to is replaced by a guess.

    >>> str(advertised_address(None, Address.parse("127.0.0.1:9092")))
    '127.0.0.1:9092'
    """
    given = advertise or listen
    address = given.advertised_as(reachable_host())
    if address != given:
        logger.warning(
            "advertised_address_chosen address=%s reason=%r",
            address,
            f"clients cannot connect to {given}, so this address is advertised; if clients reach this broker at "
            "another one, give --advertise HOST:PORT",
        )
    if not listen.is_local:
        logger.warning(
            "kafka_open_to_all listen=%s reason=%r",
            listen,
            "there is no authentication: every client that reaches this port can read, write and delete everything",
        )
    return address
